//! Random batches from a seed: the same seed gives the same batches. They compare a backend with the in-memory store,
//! which is the oracle.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::testing::conformance::Names;
use crate::{Batch, Commit, Error, ErrorKind, Expect, Keep, Key, Log, Position, Store, Ttl, Value, Write};

/// Every TTL is a number of hours and a half, and time passes by whole hours: no expiry is nearer than half an hour to a
/// call, however slow the machine is.
const TTLS: [Ttl; 4] = [Ttl::Forever, half_past(0), half_past(1), half_past(4)];

const fn half_past(hours: u64) -> Ttl {
    Ttl::Of(Duration::from_secs(hours * 3600 + 1800))
}

/// By how many hours time passes at once. Short lives end within an hour; what a backend keeps of a log that is gone ends within
/// days or weeks.
const PAUSES: [u64; 8] = [1, 1, 1, 2, 2, 4, 3 * 24, 70 * 24];

/// A small deterministic random number generator (splitmix64), not for cryptography.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n.max(1) as u64) as usize
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// The keys and logs that random batches use.
#[derive(Debug)]
pub struct Field {
    keys: Vec<Key>,
    logs: Vec<Log>,
    /// A log that is sometimes trimmed. A backend may keep more of its records than asked.
    trimmed: Log,
}

impl Field {
    /// Keys and logs with names that no other test uses.
    pub fn new(names: &Names) -> Field {
        Field {
            // The last is also the name of a log: the first write decides which of the two it is.
            keys: ["a", "b", "鍵 🔑", "d", "x"].map(|name| names.key(name)).to_vec(),
            logs: ["x", "y", "z"].map(|name| names.log(name)).to_vec(),
            trimmed: names.log("z"),
        }
    }

    /// A batch of up to five writes. Some batches are always refused.
    pub fn batch(&self, random: &mut Random) -> Batch {
        let text = |random: &mut Random| match random.below(4) {
            0 => sequenced(random.below(6) as u64),
            n => ["", "one", "二 🙂"][n - 1].to_owned(),
        };
        let expect = |random: &mut Random| match random.below(5) {
            0 | 1 => Expect::Absent,
            2 => Expect::Is(text(random)),
            _ => Expect::AbsentOr(text(random)),
        };
        let ttl = |random: &mut Random| *random.of(&TTLS);
        let mut batch = Batch::new();
        let mut appends = 0;
        // Sometimes a key is named twice, and both stores must reject the batch.
        for log in &self.logs {
            match random.below(12) {
                0..3 => {
                    let about = (*log == self.trimmed).then(|| 1 + random.below(3));
                    let keep = Keep { about, ttl: ttl(random) };
                    for _ in 0..1 + random.below(3) {
                        batch = batch.append(log, text(random), keep);
                        appends += 1;
                    }
                }
                3 => batch = batch.clear(log),
                4 => {
                    for _ in 0..1 + random.below(2) {
                        batch = batch.append_to_existing(log, text(random));
                        appends += 1;
                    }
                }
                _ => {}
            }
        }
        for _ in 0..random.below(4) {
            let key = random.of(&self.keys);
            batch = match random.below(6) {
                0 => batch.check(key, expect(random)),
                1 => batch.delete(key, text(random)),
                2 => {
                    let seq = random.below(6) as u64;
                    batch.put_if_newer(key, seq, sequenced(seq), ttl(random))
                }
                3 if appends > 0 => {
                    batch.put(key, expect(random), Value::PositionOf(random.below(appends)), ttl(random))
                }
                _ => batch.put(key, expect(random), text(random), ttl(random)),
            };
        }
        if random.below(2) == 0 { batch.likely() } else { batch }
    }

    /// Reads some keys at once, or a log from somewhere on, from both stores.
    async fn compare_reads(&self, random: &mut Random, sides: &mut [Side<'_>; 2]) -> Result<Compared, Error> {
        if random.below(2) == 0 {
            let first = random.below(self.keys.len());
            let keys = &self.keys[first..first + 1 + random.below(self.keys.len() - first)];
            return compare(sides, async |side| side.values(keys).await).await;
        }
        let log = random.of(&self.logs);
        let given = sides[0].given.get(log.as_str()).map_or(0, Vec::len);
        let after = if given == 0 { None } else { random.below(given + 1).checked_sub(1) };
        // What is trimmed is read to its end, where both stores agree.
        let limit = if *log == self.trimmed { 1000 } else { random.below(6) };
        self.compare_logs(sides, log, after, limit).await
    }

    async fn compare_logs(
        &self,
        sides: &mut [Side<'_>; 2],
        log: &Log,
        after: Option<usize>,
        limit: usize,
    ) -> Result<Compared, Error> {
        let compared = compare(sides, async |side| side.records(log, after, limit).await).await?;
        let may_have_more = *log == self.trimmed && compared.1.ends_with(&compared.0);
        Ok(if may_have_more { (compared.0.clone(), compared.0) } else { compared })
    }

    /// The values of all keys, and the records of all logs.
    async fn compare_all(&self, sides: &mut [Side<'_>; 2]) -> Result<Compared, Error> {
        let mut all = (Vec::new(), Vec::new());
        for key in &self.keys {
            let (expected, there) =
                compare(sides, async |side| side.values(std::slice::from_ref(key)).await).await?;
            all.0.extend(expected);
            all.1.extend(there);
        }
        for log in &self.logs {
            let (expected, there) = self.compare_logs(sides, log, None, 1000).await?;
            all.0.extend(expected);
            all.1.extend(there);
        }
        Ok(all)
    }
}

/// What the oracle answers, and what the store does.
type Compared = (Vec<String>, Vec<String>);

async fn compare<'a>(
    [oracle, store]: &mut [Side<'a>; 2],
    mut ask: impl AsyncFnMut(&mut Side<'a>) -> Result<Vec<String>, Error>,
) -> Result<Compared, Error> {
    Ok((ask(oracle).await?, ask(store).await?))
}

/// Turns the error that a name is of the other kind into a result that can be compared.
fn comparable<T>(answer: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Decode => Ok(Err(error.to_string())),
        answer => answer.map(Ok),
    }
}

fn sequenced(seq: u64) -> String {
    format!(r#"{{"seq":{seq},"note":"事件"}}"#)
}

/// One of the two stores, and the positions that it has returned. Two stores return different positions: a value that is one is
/// compared as such, and a record by the number of its append.
struct Side<'a> {
    store: &'a Arc<dyn Store>,
    given: HashMap<String, Vec<Position>>,
    texts: HashSet<String>,
}

impl<'a> Side<'a> {
    fn new(store: &'a Arc<dyn Store>) -> Side<'a> {
        Side { store, given: HashMap::new(), texts: HashSet::new() }
    }

    fn plain(&self, text: &str) -> String {
        if self.texts.contains(text) { "a position".to_owned() } else { text.to_owned() }
    }

    async fn values(&self, keys: &[Key]) -> Result<Vec<String>, Error> {
        Ok(match comparable(self.store.get_all(keys).await)? {
            Ok(values) => values
                .iter()
                .map(|value| format!("{:?}", value.as_deref().map(|it| self.plain(it))))
                .collect(),
            Err(other_kind) => vec![other_kind],
        })
    }

    /// Records after that of the append with this number.
    async fn records(&self, log: &Log, after: Option<usize>, limit: usize) -> Result<Vec<String>, Error> {
        let given = self.given.get(log.as_str()).map_or(&[][..], Vec::as_slice);
        let number = |position| given.iter().position(|given| *given == position);
        let after = after.and_then(|n| given.get(n).copied());
        Ok(match comparable(self.store.read(log, after, limit).await)? {
            Ok(records) => records
                .iter()
                .map(|record| format!("{:?}: {}", number(record.position), self.plain(&record.text)))
                .collect(),
            Err(other_kind) => vec![other_kind],
        })
    }

    async fn answers(&mut self, round: &[Batch]) -> Vec<String> {
        // Where only the client can compare a state, its batch may run after the others of its round.
        let compares = |write: &Write| matches!(write, Write::PutIfNewer { .. });
        let mut answers = Vec::new();
        if round.len() > 1 && !round.iter().flat_map(Batch::writes).any(compares) {
            answers = self.store.commit_each(round).await;
        } else {
            for batch in round {
                answers.push(self.store.commit(batch).await);
            }
        }
        round.iter().zip(answers).map(|(batch, answer)| self.answer(batch, answer)).collect()
    }

    fn answer(&mut self, batch: &Batch, answer: Result<Commit, Error>) -> String {
        match answer {
            Ok(Commit::Applied(positions)) => {
                let appended = batch.writes().iter().filter(|write| matches!(write, Write::Append { .. }));
                for (log, position) in appended.filter_map(Write::name).zip(&positions) {
                    self.texts.insert(position.to_string());
                    self.given.entry(log.to_owned()).or_default().push(*position);
                }
                format!("applied, {} appended", positions.len())
            }
            Ok(Commit::Refused(refusal)) => {
                let told =
                    refusal.iter().map(|(key, there)| (key.as_str(), there.text().map(|t| self.plain(t))));
                format!("refused: {:?}", told.collect::<Vec<_>>())
            }
            Err(error) => error.to_string(),
        }
    }
}

/// The first difference between two stores under the same random batches, `None` if there is none. Some batches are
/// committed alone, others in rounds of up to four; keys and logs are read in between.
pub async fn difference(
    oracle: &Arc<dyn Store>,
    store: &Arc<dyn Store>,
    seed: u64,
    batches: usize,
) -> Result<Option<String>, Error> {
    difference_over_time(oracle, store, seed, batches, None::<fn(Duration) -> std::future::Ready<()>>).await
}

/// As [`difference`], and now and then time passes: `pass` moves the clocks of both stores by so much.
pub async fn difference_over_time(
    oracle: &Arc<dyn Store>,
    store: &Arc<dyn Store>,
    seed: u64,
    batches: usize,
    mut pass: Option<impl AsyncFnMut(Duration)>,
) -> Result<Option<String>, Error> {
    let names = Names::new();
    let field = Field::new(&names);
    let mut random = Random::new(seed);
    let mut sides = [Side::new(oracle), Side::new(store)];
    let mut left = batches;
    while left > 0 {
        let n = batches - left;
        let (what, (expected, there)) = match random.below(8) {
            0 | 1 => ("reads".to_owned(), field.compare_reads(&mut random, &mut sides).await?),
            2 => {
                let hours = *random.of(&PAUSES);
                if let Some(pass) = &mut pass {
                    pass(Duration::from_secs(hours * 3600)).await;
                }
                (format!("{hours} hours"), field.compare_all(&mut sides).await?)
            }
            _ => {
                let round: Vec<Batch> =
                    (0..left.min(1 + random.below(4))).map(|_| field.batch(&mut random)).collect();
                left -= round.len();
                let answers = compare(&mut sides, async |side| Ok(side.answers(&round).await)).await?;
                (format!("{round:?}"), answers)
            }
        };
        if expected != there {
            return Ok(Some(format!("seed {seed}, from batch {n}, {what}: {expected:?} / {there:?}")));
        }
    }
    let (expected, there) = field.compare_all(&mut sides).await?;
    Ok((expected != there).then(|| format!("seed {seed}, in the end: {expected:?} / {there:?}")))
}
