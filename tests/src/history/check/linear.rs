//! The search for an order (Wing and Gong's, with Lowe's memory of where it has been): which call could have been next?
//!
//! The state of a group of keys is, for each key, the call that wrote what is there. A call may be next if it began
//! before every remaining definite call has ended. One that changes nothing and fits is taken at once: taking it later
//! could not be easier. Otherwise each is tried, those that must have happened first, and a place that was reached
//! before by another way is not searched again. To that end an unknown call that can no longer happen, because what it
//! expects will never be there again, is the same as one that has.

use std::collections::{HashMap, HashSet};

use super::{Expiry, Rules};

/// A text, by its number.
pub(super) type Text = u32;

/// Longest search; beyond it the checker reports that it gave up.
const MAX_SEARCH_STEPS: usize = 1_000_000;

/// One call, as far as it touches the keys of one group.
#[derive(Debug)]
pub(super) struct Step {
    /// Which operation of the history it is.
    pub(super) operation: usize,
    pub(super) start: u64,
    /// When it had taken effect for certain; the end of time if it is unknown.
    pub(super) end: u64,
    pub(super) skew: i64,
    pub(super) touches: Vec<Touch>,
    pub(super) told: Told,
}

/// What a step does to one key.
#[derive(Debug, Clone)]
pub(super) struct Touch {
    pub(super) key: usize,
    pub(super) expect: Want,
    pub(super) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Absent,
    Is(Text),
    AbsentOr(Text),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// A text with its life in microseconds, or without end.
    Put(Text, Option<u64>),
    Delete,
}

/// What the caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// This is there.
    There(Option<Text>),
    Applied,
    /// These were not as expected. `all` says that no others were amiss.
    Refused {
        there: Vec<(usize, Option<Text>)>,
        all: bool,
    },
    /// Nothing: it happens some time, or never.
    Maybe,
}

impl Want {
    fn holds(self, there: Option<Text>) -> bool {
        match (self, there) {
            (Want::Absent | Want::AbsentOr(_), None) => true,
            (Want::Is(text) | Want::AbsentOr(text), Some(there)) => text == there,
            (Want::Is(_), None) | (Want::Absent, Some(_)) => false,
        }
    }
}

/// A step that is tried: it must have happened by then.
#[derive(Clone, Copy)]
struct Now<'a> {
    step: &'a Step,
    by: u64,
}

/// What is there, and when that is at the earliest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// For each key, the step that wrote what is there, and the earliest moment from which its life can count.
    cells: Vec<Option<(u32, u64)>>,
    /// Where the store keeps the time: no step after this can happen before then.
    clock: u64,
}

/// Why there is no order.
#[derive(Debug)]
pub(super) enum Stuck {
    /// The search ended: `order` is the longest order that it found, and no step of `next` can follow it.
    Impossible { order: Vec<usize>, next: Vec<usize> },
    /// The search did not end.
    TooLong,
}

struct Search<'a> {
    steps: &'a [Step],
    /// The steps that write a text under a key.
    writers: HashMap<(usize, Text), Vec<usize>>,
    rules: &'a Rules,
    done: Vec<u64>,
    state: State,
    /// Definite steps that remain.
    left: usize,
    order: Vec<usize>,
}

struct Frame {
    /// What may be next, the most promising last.
    next: Vec<usize>,
    /// When it has happened at the latest: some definite step after it, or it, has ended by then.
    by: u64,
    /// The state before the step that was taken from here.
    before: State,
}

/// Finds an order of `steps` (sorted by their beginning) over `keys` keys that are absent at first.
pub(super) fn linearize(steps: &[Step], keys: usize, rules: &Rules) -> Result<(), Stuck> {
    let left = steps.iter().filter(|step| step.told != Told::Maybe).count();
    let done = vec![0; steps.len().div_ceil(64)];
    let writers = writers(steps);
    let state = State { cells: vec![None; keys], clock: 0 };
    let mut search = Search { steps, writers, rules, done, state, left, order: Vec::new() };
    let mut seen: HashSet<(Vec<u64>, State)> = HashSet::new();
    let mut longest: Option<(Vec<usize>, Vec<usize>)> = None;
    let mut frames = vec![search.frame()];
    while search.left > 0 {
        let Some(frame) = frames.last_mut() else {
            let (order, next) = longest.unwrap_or_default();
            return Err(Stuck::Impossible { order, next });
        };
        if longest.as_ref().is_none_or(|(order, _)| order.len() < search.order.len()) {
            longest = Some((search.order.clone(), frame.next.clone()));
        }
        match frame.next.pop() {
            Some(step) => {
                let Some(after) = search.after(step, frame.by) else { continue };
                frame.before = search.take(step, after);
                if seen.insert((search.settled(), search.state.clone())) {
                    frames.push(search.frame());
                } else {
                    let before = std::mem::take(&mut frame.before);
                    search.give_back(before);
                }
                if seen.len() > MAX_SEARCH_STEPS {
                    return Err(Stuck::TooLong);
                }
            }
            None => {
                frames.pop();
                if let Some(frame) = frames.last_mut() {
                    let before = std::mem::take(&mut frame.before);
                    search.give_back(before);
                }
            }
        }
    }
    Ok(())
}

fn writers(steps: &[Step]) -> HashMap<(usize, Text), Vec<usize>> {
    let mut writers: HashMap<(usize, Text), Vec<usize>> = HashMap::new();
    for (n, step) in steps.iter().enumerate() {
        for touch in &step.touches {
            if let Action::Put(text, _) = touch.action {
                writers.entry((touch.key, text)).or_default().push(n);
            }
        }
    }
    writers
}

impl Search<'_> {
    /// The steps that have happened or can no longer happen.
    fn settled(&self) -> Vec<u64> {
        let mut settled = self.done.clone();
        for (n, step) in self.steps.iter().enumerate() {
            if step.told == Told::Maybe && !self.is_done(n) && !self.can_come(n) {
                settled[n / 64] |= 1 << (n % 64);
            }
        }
        settled
    }

    /// Whether what an unknown step expects is there, or may yet be.
    fn can_come(&self, step: usize) -> bool {
        self.steps[step].touches.iter().all(|touch| {
            let Want::Is(text) = touch.expect else { return true };
            let is_there = self.state.cells[touch.key]
                .and_then(|(writer, _)| self.steps[writer as usize].wrote(touch.key))
                .is_some_and(|(there, _)| there == text);
            let writers = self.writers.get(&(touch.key, text)).map_or(&[][..], Vec::as_slice);
            is_there || writers.iter().any(|writer| *writer != step && !self.is_done(*writer))
        })
    }

    fn is_done(&self, step: usize) -> bool {
        self.done[step / 64] & (1 << (step % 64)) != 0
    }

    fn take(&mut self, step: usize, after: State) -> State {
        self.done[step / 64] |= 1 << (step % 64);
        self.left -= usize::from(self.steps[step].told != Told::Maybe);
        self.order.push(step);
        std::mem::replace(&mut self.state, after)
    }

    fn give_back(&mut self, before: State) {
        let Some(step) = self.order.pop() else { return };
        self.done[step / 64] &= !(1 << (step % 64));
        self.left += usize::from(self.steps[step].told != Told::Maybe);
        self.state = before;
    }

    /// The steps that may be next.
    fn frame(&self) -> Frame {
        let remaining = || (0..self.steps.len()).filter(|step| !self.is_done(*step));
        let by = remaining().map(|step| self.steps[step].end).min().unwrap_or(u64::MAX);
        let mut next: Vec<usize> = remaining().take_while(|step| self.steps[*step].start <= by).collect();
        let quiet = |step: &&usize| {
            let after = self.after(**step, by);
            self.steps[**step].told != Told::Maybe && after.is_some_and(|after| after == self.state)
        };
        if let Some(quiet) = next.iter().find(quiet) {
            return Frame { next: vec![*quiet], by, before: State::default() };
        }
        next.sort_by_key(|step| {
            let step = &self.steps[*step];
            (step.told != Told::Maybe, std::cmp::Reverse(step.end), std::cmp::Reverse(step.start))
        });
        Frame { next, by, before: State::default() }
    }

    /// The state after `step`, if it can be next and happens no later than `by`.
    fn after(&self, step: usize, by: u64) -> Option<State> {
        let this = Now { step: &self.steps[step], by };
        let mut after = self.state.clone();
        match &this.step.told {
            Told::There(there) => {
                let touch = this.step.touches.first()?;
                self.look(this, touch.key, *there, &mut after)?;
            }
            Told::Applied | Told::Maybe => {
                for touch in &this.step.touches {
                    self.look_for(this, touch, &mut after)?;
                }
                if self.rules.expiry == Expiry::Store {
                    after.clock = after.clock.max(this.step.start);
                }
                let from = after.clock.max(this.step.start);
                for touch in &this.step.touches {
                    match touch.action {
                        Action::None => {}
                        Action::Put(..) => after.cells[touch.key] = Some((u32::try_from(step).ok()?, from)),
                        Action::Delete => after.cells[touch.key] = None,
                    }
                }
            }
            Told::Refused { there, all } => {
                for touch in &this.step.touches {
                    match there.iter().find(|(key, _)| *key == touch.key) {
                        Some((_, view)) if touch.expect.holds(*view) => return None,
                        Some((_, view)) => self.look(this, touch.key, *view, &mut after)?,
                        None if *all => self.look_for(this, touch, &mut after)?,
                        None => {}
                    }
                }
                let fails = |touch: &Touch| {
                    self.views(this, touch.key).into_iter().flatten().any(|view| !touch.expect.holds(view))
                };
                if there.is_empty() && !this.step.touches.iter().any(fails) {
                    return None;
                }
            }
        }
        let slack = self.rules.slack;
        (after.clock <= this.step.end.min(by).saturating_add(slack)).then_some(after)
    }

    /// What a step may find under `key`: what was written, while it can stand; nothing, once it can have lapsed.
    fn views(&self, now: Now<'_>, key: usize) -> [Option<Option<Text>>; 2] {
        let Some((writer, from)) = self.state.cells[key] else { return [Some(None), None] };
        let writer = &self.steps[writer as usize];
        let Some((text, ttl)) = writer.wrote(key) else { return [Some(None), None] };
        let Some(ttl) = ttl else { return [Some(Some(text)), None] };
        let at = |time: u64, skew: i64| i128::from(time) + i128::from(skew);
        let (ttl, slack) = (i128::from(ttl), i128::from(self.rules.slack));
        let earliest_end = at(from, writer.skew) + ttl;
        let latest_end = at(writer.end, writer.skew) + ttl;
        let Now { step, by } = now;
        let stands = writer.end == u64::MAX || at(step.start, step.skew) - slack < latest_end;
        let lapsed = at(step.end.min(by), step.skew) + slack >= earliest_end;
        [stands.then_some(Some(text)), lapsed.then_some(None)]
    }

    /// Sees what `touch` expects, if that can be seen there now.
    fn look_for(&self, now: Now<'_>, touch: &Touch, after: &mut State) -> Option<()> {
        let views = self.views(now, touch.key);
        let view = views.into_iter().flatten().find(|view| touch.expect.holds(*view))?;
        self.look(now, touch.key, view, after)
    }

    /// Sees `view` under `key`, if that can be seen there now.
    fn look(&self, now: Now<'_>, key: usize, view: Option<Text>, after: &mut State) -> Option<()> {
        if !self.views(now, key).contains(&Some(view)) {
            return None;
        }
        // Where the store keeps the time, what one caller has seen end has ended for all, and it is later than that.
        if view.is_none()
            && self.rules.expiry == Expiry::Store
            && let Some((writer, from)) = after.cells[key].take()
        {
            let ttl = self.steps[writer as usize].wrote(key).and_then(|(_, ttl)| ttl).unwrap_or(0);
            after.clock = after.clock.max((from + ttl).saturating_sub(self.rules.slack));
        }
        Some(())
    }
}

impl Step {
    fn wrote(&self, key: usize) -> Option<(Text, Option<u64>)> {
        self.touches.iter().find(|touch| touch.key == key).and_then(|touch| match touch.action {
            Action::Put(text, ttl) => Some((text, ttl)),
            Action::None | Action::Delete => None,
        })
    }
}
