//! Sends batches, in the form that the server accepts, until each has its answer.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::encode::{Command, Judged, Outcome, Reply, Script, ServerError};
use super::{Exchange, Scripted, Transport};
use crate::resend::resendable;
use crate::{Batch, Commit, Error, Write};

/// How often one call sends a batch. A server can refuse a batch at most four times for reasons that another form
/// avoids; the other sends are for a value that another program keeps changing while the client compares it.
const MAX_SENDS: usize = 10;

/// A script, built when it is first used.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    script: OnceLock<Script>,
    /// The server has the script, so that its hash is enough. Until then the text is sent, so that the first call is
    /// one round trip too.
    seen: AtomicBool,
}

/// How the script is sent.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) head: bool,
    pub(super) publishes: bool,
}

/// A batch that is being sent, and its latest answer.
struct Sending<'a> {
    batch: &'a Batch,
    /// It may be sent again after a lost reply, with the batches that it travels with.
    resendable: bool,
    /// It is sent as a plain SET, without the script.
    plain: bool,
    /// The latest answer.
    answer: Result<Commit, Error>,
    /// The server did not run it, and may accept it in another form: send it again.
    again: bool,
    /// A reply was lost: the batch may be applied, even if a later send returns an error.
    lost: bool,
    /// The script failed with an unknown error, perhaps in its last step, the publish: the writes may be applied.
    doubtful: bool,
    /// It is applied; its publishes must still be sent.
    unpublished: bool,
    judged: Vec<Judged>,
}

impl<T: Transport> Scripted<T> {
    /// Sends batches in one request, in order. A batch that the server did not run is sent again in another form: with
    /// the script's text if the server no longer has it, without the parts that the server does not accept, or with a
    /// comparison that only the client can make. (Such a batch may then run after batches that follow it in this
    /// request: those that another client's load of the script let through, or that need no comparison.)
    pub(super) async fn run(&self, batches: &[&Batch], deadline: Instant) -> Vec<Result<Commit, Error>> {
        let (plain, resendable) = (plain_batches::<T>(batches), resendable(batches));
        let each = batches.iter().zip(plain).zip(resendable);
        let mut all: Vec<Sending<'_>> =
            each.map(|((batch, plain), resendable)| Sending::new(batch, plain, resendable)).collect();
        let mut form = self.form();
        for _ in 0..MAX_SENDS {
            let mut waiting: Vec<&mut Sending<'_>> = all.iter_mut().filter(|sending| sending.again).collect();
            if waiting.is_empty() {
                break;
            }
            // Plain commands first, so that the other batches share a call of the script. No other batch names their keys.
            waiting.sort_by_key(|sending| !sending.plain);
            form = self.attempt(&mut waiting, form, deadline).await;
        }
        let unpublished = all.iter().filter(|sending| sending.unpublished).map(|sending| sending.batch);
        self.publish(unpublished.collect(), deadline).await;
        all.into_iter().map(|sending| sending.answer).collect()
    }

    pub(super) async fn run_one(&self, batch: &Batch, deadline: Instant) -> Result<Commit, Error> {
        self.run(&[batch], deadline).await.pop().unwrap_or_else(|| Err(Error::unknown("no reply")))
    }

    /// Sends the waiting batches in this form. Returns the form for those that must be sent again.
    async fn attempt(&self, waiting: &mut [&mut Sending<'_>], form: Form, deadline: Instant) -> Form {
        let loaded = &self.scripts[usize::from(form.head)];
        let script = loaded.script.get_or_init(|| Script::new(self.head(form)));
        let mut with_text = !loaded.seen.load(Ordering::Relaxed);
        let groups = waiting.chunk_by(same_call).flat_map(|group| group.chunks(T::BATCHES_PER_CALL));
        let commands: Vec<_> = groups
            .map(|group| {
                let plain = match group {
                    [sending] => sending.plain_command::<T>(),
                    _ => None,
                };
                plain.unwrap_or_else(|| {
                    let batches = group.iter().map(|sending| (sending.batch, sending.judged.as_slice()));
                    script.call(batches, std::mem::take(&mut with_text), form.publishes)
                })
            })
            .collect();
        let repeatable = waiting.iter().all(|sending| sending.resendable);
        let exchange = self.exchange(&commands, repeatable, deadline).await;
        drop(commands);
        let Exchange { replies, resent } = match exchange {
            Ok(exchange) => exchange,
            Err(error) => {
                for sending in waiting {
                    sending.lost |= sending.doubtful;
                    if !repeatable && error.maybe_applied() && sending.resendable {
                        // Another batch of the request must not be sent again. This one may be.
                        sending.lost = true;
                        sending.failed_for_now(error.clone());
                    } else {
                        sending.failed(error.clone());
                    }
                }
                return form;
            }
        };
        if waiting.iter().any(|sending| !sending.plain) {
            loaded.seen.store(true, Ordering::Relaxed);
        }
        let mut next = form;
        let groups = waiting.chunk_by_mut(same_call).flat_map(|group| group.chunks_mut(T::BATCHES_PER_CALL));
        for (group, reply) in groups.zip(replies) {
            // An error of the whole call may come from the publish of any of its batches, and after the writes of some.
            let is_error_of_call = matches!(reply, Reply::Error(_)) && group.len() > 1;
            let publishes = form.publishes && group.iter().any(|sending| sending.batch.publishes());
            let plain = group.iter().any(|sending| sending.plain);
            let replies = if plain { vec![reply] } else { reply.of_each(group.len()) };
            for (sending, reply) in group.iter_mut().zip(replies) {
                sending.lost |= resent;
                let outcome = match plain {
                    true => reply.plain_outcome(sending.batch, T::SET_NX_RETURNS_VALUE),
                    false => reply.outcome(sending.batch, &sending.judged),
                };
                let error = match outcome {
                    Ok(outcome) => {
                        self.answered(sending, outcome, form, &mut next);
                        continue;
                    }
                    Err(error) => error,
                };
                // A server that fails for no known reason may not have loaded the text that it was sent.
                if error.is_script_unknown() || error.is_unknown() {
                    loaded.seen.store(false, Ordering::Relaxed);
                }
                sending.lost |= is_error_of_call && error.is_unknown();
                let publishes = publishes && (is_error_of_call || sending.batch.publishes());
                self.failed_on_server(sending, error, publishes, form, &mut next);
            }
        }
        next
    }

    /// Records the server's answer to a batch.
    fn answered(&self, sending: &mut Sending<'_>, outcome: Outcome, form: Form, next: &mut Form) {
        match outcome {
            Outcome::Done(commit) => {
                if !form.publishes && sending.batch.publishes() {
                    self.remember_to_publish_apart();
                    sending.unpublished = matches!(commit, Commit::Applied(_));
                }
                sending.done(commit);
            }
            Outcome::Unpublished(commit) => {
                self.remember_to_publish_apart();
                next.publishes = false;
                sending.unpublished = true;
                sending.done(commit);
            }
            Outcome::Unjudged(judged) => {
                sending.lost |= sending.doubtful;
                sending.failed(Error::not_sent("another program kept changing a value that is judged"));
                sending.judged.retain(|earlier| judged.iter().all(|later| later.key != earlier.key));
                sending.judged.extend(judged);
                sending.again = true;
            }
            Outcome::Exists => {
                sending.plain = false;
                sending.failed_for_now(Error::not_sent("another program kept changing a value"));
            }
        }
    }

    /// Records a server error. `publishes`: a publish may be its cause.
    fn failed_on_server(
        &self,
        sending: &mut Sending<'_>,
        error: ServerError,
        publishes: bool,
        form: Form,
        next: &mut Form,
    ) {
        // If the same error comes without a publish, the publish was not its cause: it came before the first write.
        sending.lost |= sending.doubtful && !error.is_unknown();
        if error.is_script_unknown() {
            // The next form is the same, with the text.
        } else if error.is_head_refused() && form.head {
            self.remember_headless();
            next.head = false;
            sending.doubtful = publishes;
        } else if error.is_unknown() && publishes {
            // Perhaps the server does not accept a PUBLISH in a script. Try without; if that works, remember it.
            next.publishes = false;
            sending.doubtful = true;
        } else {
            sending.failed(error.into());
            return;
        }
        // A batch that may be applied already is sent again only if the rule allows it.
        sending.again = !sending.doubtful || sending.resendable;
        if sending.again {
            sending.failed_for_now(error.into());
        } else {
            sending.failed(Error::unknown("the script failed, perhaps after its writes"));
        }
    }

    /// Sends the publishes that the script could not send. The batches stay applied, even if this fails.
    async fn publish(&self, batches: Vec<&Batch>, deadline: Instant) {
        let writes = batches.into_iter().flat_map(Batch::writes);
        let commands: Vec<Command<'_>> = writes
            .filter_map(|write| match write {
                Write::Publish { channel, text } => {
                    Some(Command::of(["PUBLISH", channel.as_str(), text.as_str()]))
                }
                _ => None,
            })
            .collect();
        if commands.is_empty() {
            return;
        }
        let sent = self.exchange(&commands, true, deadline).await;
        let refusal = |reply| match reply {
            Reply::Error(error) => Some(Error::from(error)),
            _ => None,
        };
        if let Some(error) = sent.map_or_else(Some, |sent| sent.replies.into_iter().find_map(refusal)) {
            tracing::warn!(%error, "committed, and the publish after it failed");
        }
    }
}

/// Which of the batches are sent as plain commands. A plain command that finds the key is followed by the script, after
/// the other batches of the request, so batches that share a key all go through the script, in order.
fn plain_batches<T: Transport>(batches: &[&Batch]) -> Vec<bool> {
    if let [batch] = batches {
        return vec![plain_command::<T>(batch).is_some()];
    }
    let mut named: HashMap<&str, usize> = HashMap::new();
    for name in batches.iter().flat_map(|batch| batch.writes()).filter_map(Write::name) {
        *named.entry(name).or_default() += 1;
    }
    let alone = |batch: &Batch| batch.writes().iter().filter_map(Write::name).all(|name| named[name] == 1);
    let plain = |batch: &&Batch| plain_command::<T>(batch).is_some() && alone(batch);
    batches.iter().map(plain).collect()
}

/// A read of one key needs no script, nor does a put of an absent key (a claim or a lock). If the put is refused, the GET option
/// of SET returns the stored value. Upstash's SET does not return it, so a refusal there costs a second request with the script.
/// Only a put that is likely to be applied is sent as SET there.
fn plain_command<T: Transport>(batch: &Batch) -> Option<Command<'_>> {
    if let Some(key) = batch.read_key() {
        return Some(Command::of([T::READ.0, key.as_str()]));
    }
    if T::SET_NX_RETURNS_VALUE || batch.is_likely() {
        Command::set_if_absent(batch, T::SET_NX_RETURNS_VALUE)
    } else {
        None
    }
}

/// Whether two batches that follow each other may share a call of the script.
fn same_call(one: &&mut Sending<'_>, next: &&mut Sending<'_>) -> bool {
    !one.plain && !next.plain
}

impl<'a> Sending<'a> {
    fn new(batch: &'a Batch, plain: bool, resendable: bool) -> Sending<'a> {
        Sending {
            batch,
            resendable,
            plain,
            answer: Err(Error::not_sent("not sent yet")),
            again: true,
            lost: false,
            doubtful: false,
            unpublished: false,
            judged: Vec::new(),
        }
    }

    fn plain_command<T: Transport>(&self) -> Option<Command<'a>> {
        if self.plain { plain_command::<T>(self.batch) } else { None }
    }

    fn done(&mut self, commit: Commit) {
        self.answer = Ok(commit);
        self.again = false;
    }

    fn failed(&mut self, error: Error) {
        self.failed_for_now(error);
        self.again = false;
    }

    /// The answer, unless the batch is sent again.
    fn failed_for_now(&mut self, error: Error) {
        self.answer = Err(if self.lost { error.after_a_lost_reply() } else { error });
    }
}
