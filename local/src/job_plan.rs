//! The events of the playground's jobs, by the configured stages.

use onetap_bus::{Event, Job, Stage, Stages};
use serde_json::json;

/// Events of a stage that sets the state.
const EVENTS_PER_STAGE: usize = 2;
/// Events of a stage that leaves the state alone, such as the tokens of a language model.
const EVENTS_PER_STATELESS_STAGE: usize = 20;
/// The entry of all stages without one of their own, and a stage that it stands for.
const OTHERS: &str = "*";
const OTHER: &str = "other";

/// What happens in a job: one or more events of each stage that the table names.
#[derive(Debug)]
pub(crate) struct JobPlan {
    stages: Stages,
    /// Stages and sequence numbers, in the order of the table. The last one ends the job, and no other does.
    events: Vec<(String, u64)>,
}

impl JobPlan {
    pub(crate) fn new(stages: Stages) -> JobPlan {
        let mut ending: Vec<&Stage> = stages.iter().filter(|stage| stage.ends().is_some()).collect();
        ending.sort_by_key(|stage| stage.name() == OTHERS);
        let ending = ending.first().copied();
        let mut events = Vec::new();
        for stage in &stages {
            let leads_to_another_end = stage.ends().is_some() && Some(stage) != ending;
            if stage.name() == OTHERS || leads_to_another_end {
                continue;
            }
            let wanted = if stage.sets_state() { EVENTS_PER_STAGE } else { EVENTS_PER_STATELESS_STAGE };
            let seqs = stage.seqs().take(wanted).filter(|seq| !stage.is_final(*seq));
            events.extend(seqs.map(|seq| (stage.name().to_owned(), seq)));
        }
        events.extend(ending.and_then(|stage| {
            let name = if stage.name() == OTHERS { OTHER } else { stage.name() };
            Some((name.to_owned(), stage.ends()?))
        }));
        JobPlan { stages, events }
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }

    /// The job's events as JSON, the one that ends it last.
    pub(crate) fn events(&self, job: &Job) -> Vec<String> {
        let event = |(stage, seq): &(String, u64)| {
            let data = json!({ "status": self.status(stage, *seq) });
            Event::new(&self.stages, job, stage, *seq, &data).ok().map(|event| event.text().to_owned())
        };
        self.events.iter().filter_map(event).collect()
    }

    fn status(&self, stage: &str, seq: u64) -> String {
        let Some(stage) = self.stages.get(stage) else { return String::new() };
        match seq - stage.seqs().start() {
            nth if !stage.sets_state() => format!("part {}", nth + 1),
            0 if !stage.is_final(seq) => "started".to_owned(),
            _ => "finished".to_owned(),
        }
    }

    /// The sequence number that the state of a finished job has: the highest of those that set it.
    pub(crate) fn final_state(&self) -> Option<u64> {
        let sets_state = |stage: &str| self.stages.get(stage).is_some_and(Stage::sets_state);
        self.events.iter().filter(|(stage, _)| sets_state(stage)).map(|(_, seq)| *seq).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan's stages and sequence numbers. All are events by the table.
    fn plan(stages: Stages) -> (Vec<(String, u64)>, Option<u64>) {
        let plan = JobPlan::new(stages.clone());
        for text in plan.events(&Job::new("scan", "job-1").unwrap()) {
            Event::parse(text, &stages).unwrap();
        }
        let state = plan.final_state();
        (plan.events, state)
    }

    fn seqs(stage: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<(String, u64)> {
        seqs.into_iter().map(|seq| (stage.to_owned(), seq)).collect()
    }

    #[test]
    fn a_job_has_two_events_of_each_stage_and_ends_with_the_last() {
        let expected = [("vision", 10), ("rule", 20), ("answer", 30), ("reward", 40), ("done", 50)]
            .map(|(stage, first)| seqs(stage, [first, first + 1]));
        assert_eq!(plan(Stages::default()), (expected.concat(), Some(51)));
    }

    #[test]
    fn a_stage_that_leaves_the_state_alone_has_many_and_a_job_one_end() {
        let table = r#"[{"stage":"done","first":10,"last":19,"ends":10},{"stage":"failed","first":20,"last":29,"ends":20},
            {"stage":"token","first":1000,"last":999999,"state":false},{"stage":"plan","first":0,"last":0},
            {"stage":"*","first":30,"last":39}]"#;
        let expected = [seqs("token", 1000..1020), seqs("plan", [0]), seqs("done", [10])].concat();
        assert_eq!(plan(Stages::from_json(table).unwrap()), (expected, Some(10)));
    }

    #[test]
    fn a_table_without_names_is_enough_for_a_job() {
        let table = r#"[{"stage":"*","first":0,"last":9,"state":false,"ends":7}]"#;
        assert_eq!(plan(Stages::from_json(table).unwrap()), (seqs("other", [7]), None));
    }
}
