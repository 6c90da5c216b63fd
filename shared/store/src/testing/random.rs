//! Random batches from a seed: the same seed gives the same batches. They compare a backend with the in-memory store,
//! which is the oracle.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::testing::conformance::Names;
use crate::{Batch, Commit, Error, Expect, Keep, Key, Log, Position, Record, Store, Ttl, Value, Write};

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
}

impl Field {
    /// Keys and logs with names that no other test uses.
    pub fn new(names: &Names) -> Field {
        Field {
            // The last is also the name of a log: the first write decides which of the two it is.
            keys: ["a", "b", "鍵 🔑", "d", "x"].map(|name| names.key(name)).to_vec(),
            logs: ["x", "y"].map(|name| names.log(name)).to_vec(),
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
        let ttl = |random: &mut Random| match random.below(3) {
            0 => Ttl::Forever,
            _ => Ttl::Of(Duration::from_secs(3600)),
        };
        let mut batch = Batch::new();
        let mut appends = 0;
        // Sometimes a key is named twice, and both stores must reject the batch.
        for log in &self.logs {
            match random.below(12) {
                0..3 => {
                    let keep = Keep { about: None, ttl: ttl(random) };
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

    /// The values of all keys, then the records of all logs.
    async fn state(&self, store: &Arc<dyn Store>, given: &Positions) -> Result<Vec<String>, Error> {
        let mut state = Vec::new();
        for key in &self.keys {
            let value = comparable(store.get(key).await)?;
            state.push(format!("{:?}", value.map(|there| there.map(|text| given.plain(&text)))));
        }
        for log in &self.logs {
            match comparable(store.read(log, None, 1000).await)? {
                Ok(records) => state.extend(records.into_iter().map(|Record { position, text }| {
                    format!("{}: {text}", given.plain(&position.to_string()))
                })),
                Err(other_kind) => state.push(other_kind),
            }
        }
        Ok(state)
    }
}

/// Turns the error that a name is of the other kind into a result that can be compared.
fn comparable<T>(answer: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match answer {
        Err(error @ Error::Decode { .. }) => Ok(Err(error.to_string())),
        answer => answer.map(Ok),
    }
}

fn sequenced(seq: u64) -> String {
    format!(r#"{{"seq":{seq},"note":"事件"}}"#)
}

/// The positions that a store has returned. Two stores return different positions, so each position is replaced by the
/// same text before the stores are compared.
#[derive(Default)]
struct Positions(HashSet<String>);

impl Positions {
    fn plain(&self, text: &str) -> String {
        if self.0.contains(text) { "a position".to_owned() } else { text.to_owned() }
    }

    async fn answers(&mut self, store: &Arc<dyn Store>, round: &[Batch]) -> Vec<String> {
        // Where only the client can compare a state, its batch may run after the others of its round.
        let compares = |write: &Write| matches!(write, Write::PutIfNewer { .. });
        let mut answers = Vec::new();
        if round.len() > 1 && !round.iter().flat_map(Batch::writes).any(compares) {
            answers = store.commit_each(round).await;
        } else {
            for batch in round {
                answers.push(store.commit(batch).await);
            }
        }
        answers.into_iter().map(|answer| self.answer(answer)).collect()
    }

    fn answer(&mut self, answer: Result<Commit, Error>) -> String {
        match answer {
            Ok(Commit::Applied(positions)) => {
                self.0.extend(positions.iter().map(Position::to_string));
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
/// committed alone, others in rounds of up to four.
pub async fn difference(
    oracle: &Arc<dyn Store>,
    store: &Arc<dyn Store>,
    seed: u64,
    batches: usize,
) -> Result<Option<String>, Error> {
    let names = Names::new();
    let field = Field::new(&names);
    let mut random = Random::new(seed);
    let mut told = [Positions::default(), Positions::default()];
    let mut left = batches;
    while left > 0 {
        let round: Vec<Batch> =
            (0..left.min(1 + random.below(4))).map(|_| field.batch(&mut random)).collect();
        left -= round.len();
        let expected = told[0].answers(oracle, &round).await;
        let answers = told[1].answers(store, &round).await;
        if expected != answers {
            let n = batches - left - round.len();
            return Ok(Some(format!("seed {seed}, from batch {n} {round:?}: {expected:?} / {answers:?}")));
        }
    }
    let expected = field.state(oracle, &told[0]).await?;
    let state = field.state(store, &told[1]).await?;
    Ok((expected != state).then(|| format!("seed {seed}, in the end: {expected:?} / {state:?}")))
}
