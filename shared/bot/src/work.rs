//! Handles one event: its writes are committed before the reply is sent, and its lock is released after it.

use std::time::Duration;

use metrics::{counter, histogram};
use onetap_idem::{RecordOutcome, Run};
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind};
use onetap_store::lease::ReleaseOutcome;
use onetap_store::{Batch, Commit, Edit, Error, Lease, Round, Store, Values, edit};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Step, Unwritten};
use crate::bot::default_unavailable;
use crate::claims::{Begun, EventClaim, Marker, Plan, count_dedupe};
use crate::locks::LockOutcome;
use crate::panics::{caught, caught_async};
use crate::reply::{Replied, reply};
use crate::session::Session;
use crate::{Answer, Bot, Change, Context, Ended, Ending, Incoming};

/// Handles one event, and says how it ended.
pub(crate) async fn handle_event<B: Bot>(session: &Session<'_>, bot: &B, begun: Begun<'_, B::Ask>) -> Ending {
    let start = Instant::now();
    let event = begun.incoming.event;
    if event.is_redelivery {
        counter!("line_redelivery_total").increment(1);
    }
    let ending = end(session, bot, begun).await;
    let (kind, ended) = (event.kind.label(), ending.ended);
    counter!("line_webhook_events_total", "event_type" => kind, "outcome" => ended.label()).increment(1);
    histogram!("processing_duration_seconds", "event_type" => kind).record(start.elapsed());
    tracing::info!(event_type = kind, outcome = ended.label(), "event");
    ending
}

async fn end<B: Bot>(session: &Session<'_>, bot: &B, begun: Begun<'_, B::Ask>) -> Ending {
    let Begun { incoming, plan, claim, lock, known } = begun;
    let event = incoming.event;
    let ask = match plan {
        Plan::Nothing => return ignored(event).into(),
        Plan::Panicked => return Ended::Failed.into(),
        Plan::Answer { ask, .. } => ask,
    };
    let asked = Asked { session, bot, incoming, ask: &ask };
    match (claim, lock) {
        (EventClaim::Elsewhere, _) => Ended::Elsewhere.into(),
        (EventClaim::Done(marker), _) => asked.repeat(marker).await.into(),
        (EventClaim::Ours(run), LockOutcome::Busy(messages)) => {
            let (ended, record) = asked.deny(run, messages).await;
            finish(session, event, ended, LastWrites { record, ..LastWrites::default() }).await;
            if ended == Ended::Handled { Ended::Busy.into() } else { ended.into() }
        }
        // A busy reply would finish the event. The lock expires, and then the redelivered event can be handled.
        (EventClaim::Ours(run), LockOutcome::LeftBehind) => {
            asked.leave(run, None, Ended::Elsewhere).await.into()
        }
        (EventClaim::Ours(run), LockOutcome::Held(lease)) => asked.work(known, run, Some(lease)).await,
        (EventClaim::Ours(run), LockOutcome::Unlocked) => asked.work(known, run, None).await,
    }
}

fn ignored(event: &Event) -> Ended {
    match event.kind {
        _ if event.source.chat == Chat::Unknown => Ended::Skipped,
        Kind::Skipped(_) | Kind::Other(_) => Ended::Skipped,
        Kind::Message(IncomingMessage::Text(_) | IncomingMessage::Location { .. }) => Ended::Ignored,
        Kind::Message(_) => Ended::Skipped,
        _ => Ended::Ignored,
    }
}

/// An event that asks for something.
struct Asked<'a, B: Bot> {
    session: &'a Session<'a>,
    bot: &'a B,
    incoming: Incoming<'a>,
    ask: &'a B::Ask,
}

/// How an event ended, and what its end writes.
type Outcome = (Ended, Option<MarkerWrite>);

impl<B: Bot> Asked<'_, B> {
    /// Sends what is left to send of an event that was handled before.
    async fn repeat(&self, marker: Option<Marker>) -> Ended {
        let (session, event) = (self.session, self.incoming.event);
        let replied = match marker {
            None | Some(Marker::Answered) => return Ended::Duplicate,
            Some(Marker::Unheard(messages)) => reply(session, event, &messages).await,
            // Its writes were committed by a run that may not have replied.
            Some(Marker::Answer(messages)) => {
                let context = Context::new(self.incoming, session, Values::default());
                self.reply_to_written(&context, messages).await
            }
        };
        if replied.ended() == Ended::Handled { Ended::Duplicate } else { Ended::Failed }
    }

    /// Ends an event of ours without work.
    async fn leave(&self, run: Option<Run>, lease: Option<Lease>, ended: Ended) -> Ended {
        let record = run.map(|run| MarkerWrite::Ended(run, ended));
        finish(self.session, self.incoming.event, ended, LastWrites { record, lease, to_keep: None }).await;
        ended
    }

    /// Does the work of an event that is ours.
    async fn work(&self, known: Values, run: Option<Run>, lease: Option<Lease>) -> Ending {
        let (session, event) = (self.session, self.incoming.event);
        // The events before it took all of the time. Without a claim a redelivery would repeat those, too.
        if run.is_some() && Instant::now() >= session.answer_deadline() {
            return self.leave(run, lease, Ended::Failed).await.into();
        }
        let context = Context::new(self.incoming, session, known);
        let Answer { messages, change, to_keep, comes_again, extensions } = self.answer(&context).await;
        let (ended, record) = match (change, messages) {
            (Some(change), messages) if session.store_is_up() => {
                self.write_and_reply(&context, run, change, messages).await
            }
            (_, Some(messages)) => self.say(run, messages).await,
            (Some(change), None) => self.apologize(run, change.unwritten).await,
            (None, None) => {
                let ended = if comes_again { Ended::Failed } else { Ended::Handled };
                (ended, run.map(|run| MarkerWrite::Ended(run, ended)))
            }
        };
        finish(session, event, ended, LastWrites { record, to_keep, lease }).await;
        Ending { ended, extensions }
    }

    /// The bot's answer, if it is there in time for the writes and the reply.
    async fn answer(&self, context: &Context<'_>) -> Answer {
        let answer = caught_async("answer", self.bot.answer(context, self.ask));
        match timeout_at(context.deadline(), answer).await {
            Ok(Some(Ok(answer))) => return answer,
            Ok(Some(Err(error))) => log_bot_error(&*error),
            Ok(None) => {}
            Err(_) => tracing::error!("the bot has not answered an event in time"),
        }
        Answer::say(self.unavailable())
    }

    fn unavailable(&self) -> Messages {
        caught("unavailable", || self.bot.unavailable()).unwrap_or_else(default_unavailable)
    }

    /// Replies to an event that writes nothing.
    async fn say(&self, run: Option<Run>, messages: Messages) -> Outcome {
        let replied = reply(self.session, self.incoming.event, &messages).await;
        (replied.ended(), run.map(|run| MarkerWrite::after(run, replied, messages)))
    }

    /// The same with messages that say "wait" or "try again". Unless a marker keeps them, a redelivery would do what they deny.
    async fn deny(&self, run: Option<Run>, messages: Messages) -> Outcome {
        let replied = reply(self.session, self.incoming.event, &messages).await;
        let is_kept = run.is_some() && self.session.store_is_up();
        let replied = if is_kept { replied } else { replied.final_if_unknown() };
        (replied.ended(), run.map(|run| MarkerWrite::after(run, replied, messages)))
    }

    /// Ends an event whose change was certainly not written.
    async fn apologize(&self, run: Option<Run>, unwritten: Unwritten) -> Outcome {
        let messages = match unwritten {
            Unwritten::Unavailable => self.unavailable(),
            Unwritten::Say(messages) => messages,
            Unwritten::Again => {
                return (Ended::Failed, run.map(|run| MarkerWrite::Ended(run, Ended::Failed)));
            }
        };
        self.deny(run, messages).await
    }

    /// Makes the change, then replies: the change's own messages, else `messages`, which are right whether it is written or not.
    async fn write_and_reply(
        &self,
        context: &Context<'_>,
        mut run: Option<Run>,
        change: Change,
        messages: Option<Messages>,
    ) -> Outcome {
        let Change { edit, step, is_repeatable, unwritten } = change;
        let edit = edit.knowing(&context.lock_known());
        let written = write(self.session, run.as_mut(), edit, step, messages.as_ref()).await;
        match written {
            Ok(Marker::Answer(answer)) => {
                count_if(run.is_some(), "executed");
                let replied = self.reply_to_written(context, answer.clone()).await;
                match run {
                    // Without a claim there is no marker, so a redelivery would repeat the change.
                    None if !is_repeatable => (Ended::Handled, None),
                    None => (replied.ended(), None),
                    Some(run) => {
                        let amended = run.amend_batch(&Marker::Answer(answer), &Marker::Answered);
                        let is_heard = replied.ended() == Ended::Handled;
                        (replied.ended(), is_heard.then_some(MarkerWrite::Answered(amended, replied)))
                    }
                }
            }
            Ok(_) => {
                count_if(run.is_some(), "executed");
                (Ended::Handled, None)
            }
            Err(edit::Error::TakenOver) => {
                count_if(run.is_some(), "lost_lease");
                (Ended::Elsewhere, None)
            }
            Err(error) => {
                if let edit::Error::Step(error) = &error {
                    log_bot_error(&**error);
                }
                let maybe_written = matches!(&error, edit::Error::Unwritten(error) if error.maybe_applied());
                if maybe_written && run.is_some() {
                    // The claim stays: it is the result's, if that was written.
                    count_dedupe("unrecorded");
                    return match messages {
                        Some(messages) => self.say(None, messages).await,
                        // If the bot said "try again", the user could enter it twice. The redelivery finds the marker and
                        // replies, or finds none and does the work.
                        None => (Ended::Failed, None),
                    };
                }
                match messages {
                    Some(messages) => self.say(run, messages).await,
                    None => self.apologize(run, unwritten).await,
                }
            }
        }
    }

    /// Replies to an event whose writes are committed. The run that committed them may have died before that.
    async fn reply_to_written(&self, context: &Context<'_>, messages: Messages) -> Replied {
        let work = self.bot.after_commit(context, self.ask, messages.clone());
        let done = timeout_at(self.session.before_reply(), caught_async("after_commit", work)).await;
        let messages = done.ok().flatten().unwrap_or(messages);
        reply(self.session, self.incoming.event, &messages).await
    }
}

/// Logs why a bot has failed. The text of an error that is not this project's may quote a user.
fn log_bot_error(error: &(dyn std::error::Error + Send + Sync + 'static)) {
    if error.is::<Error>() || error.is::<onetap_line::CallError>() {
        tracing::error!(%error, "the bot has failed to answer an event");
    } else {
        tracing::error!("the bot has failed to answer an event: RUST_LOG=debug shows the error");
        tracing::debug!(%error, "the error of the bot");
    }
}

fn count_if(has_claim: bool, outcome: &'static str) {
    if has_claim {
        count_dedupe(outcome);
    }
}

/// Commits a change together with the marker that has its answer: the step's own, else `messages`.
async fn write(
    session: &Session<'_>,
    run: Option<&mut Run>,
    edit: Edit<'static>,
    mut step: Step,
    messages: Option<&Messages>,
) -> Result<Marker, edit::Error<crate::Error>> {
    let edit = edit.deadline(Some(session.before_reply()));
    let store = &session.store();
    let step = |there: &_| {
        let (writes, own) =
            caught("the step of a change", || step(there)).ok_or("the step has panicked")??;
        // A batch that no store takes is the bot's failure, and not the store's.
        writes.validate(store.max_value())?;
        let answer = own.or_else(|| messages.cloned());
        Ok((writes, answer.map_or(Marker::Answered, Marker::Answer)))
    };
    let written = match run {
        Some(run) => run.edit(store, &edit, step).await,
        None => edit.apply(store, step).await,
    };
    written.inspect_err(|error| session.note_failed_edit(error))
}

/// The final write for an event.
enum MarkerWrite {
    /// How an event that writes nothing ended.
    Ended(Run, Ended),
    /// The answer of an event that writes nothing, which LINE may not have taken: a redelivery sends it.
    Unheard(Run, Messages),
    /// That the answer of an event that writes something was sent.
    Answered(Batch, Replied),
}

impl MarkerWrite {
    /// Of an event that writes nothing, after its reply.
    fn after(run: Run, replied: Replied, answer: Messages) -> MarkerWrite {
        match replied {
            Replied::Unknown => MarkerWrite::Unheard(run, answer),
            replied => MarkerWrite::Ended(run, replied.ended()),
        }
    }

    /// If LINE is to deliver the event again, its claim is released, or its answer is kept for that.
    fn batch(&self) -> Batch {
        match self {
            MarkerWrite::Unheard(run, answer) => run.commit_batch(&Marker::Unheard(answer.clone())),
            MarkerWrite::Ended(run, ended) if ended.comes_again() => run.abandon_batch(),
            MarkerWrite::Ended(run, _) => run.commit_batch(&Marker::Answered),
            MarkerWrite::Answered(amended, _) => amended.clone(),
        }
    }

    /// Counts the outcome of the event's dedupe, by the store's answer to the batch.
    fn count(self, answer: Result<Commit, Error>) {
        count_dedupe(match (self, answer) {
            // Counted when it was written.
            (MarkerWrite::Answered(..), _) => return,
            (MarkerWrite::Ended(_, Ended::Elsewhere), _) => "in_progress",
            (MarkerWrite::Ended(_, Ended::Failed), _) => "failed",
            (MarkerWrite::Ended(run, _) | MarkerWrite::Unheard(run, _), Ok(answer)) => {
                match run.committed(answer) {
                    RecordOutcome::Recorded => "executed",
                    _ => "lost_lease",
                }
            }
            (MarkerWrite::Ended(..) | MarkerWrite::Unheard(..), Err(_)) => "unrecorded",
        });
    }
}

/// The writes that end an event.
#[derive(Default)]
struct LastWrites {
    record: Option<MarkerWrite>,
    /// What the answer wants to keep, and nobody waits for.
    to_keep: Option<Batch>,
    /// The lock to be released.
    lease: Option<Lease>,
}

/// Sends the last writes of an event, in one round trip. A failure is a warning: the claim and the lock end by themselves.
async fn finish(session: &Session<'_>, event: &Event, ended: Ended, last: LastWrites) {
    let LastWrites { record, to_keep, lease } = last;
    // That LINE accepted the answer is not worth a round trip of its own: a redelivery would send the answer again, and LINE
    // refuses a used token.
    if let (Some(MarkerWrite::Answered(_, Replied::Accepted)), None, None) = (&record, &to_keep, &lease) {
        return;
    }
    let mut round = Round::new();
    let record = record.map(|record| (round.add(record.batch()), record));
    // A refusal means that another instance has kept one meanwhile.
    let _ = to_keep.map(|batch| round.add(batch));
    let lease = lease.map(|lease| round.add(lease.releasing_after(min_hold(session, ended))));
    let mut answers = session.send(round).await;
    if let Some((ticket, record)) = record {
        record.count(answers.take(ticket));
    }
    if let Some(ticket) = lease {
        log_release(event, answers.take(ticket));
    }
}

/// How long an event's lock is kept at least. Only an event that is done has a cooldown: one that LINE sends again would meet
/// its own lock.
fn min_hold(session: &Session<'_>, ended: Ended) -> Duration {
    match &session.engine.config.lock {
        Some(lock) if !ended.comes_again() => lock.min_hold,
        _ => Duration::ZERO,
    }
}

fn log_release(event: &Event, release: Result<ReleaseOutcome, Error>) {
    let status = match release {
        Ok(ReleaseOutcome::Released) => "released",
        Ok(ReleaseOutcome::Outlasted) => "outlasted",
        Err(_) => "failed",
    };
    counter!("processing_lock_release_total", "status" => status).increment(1);
    let event_type = event.kind.label();
    match status {
        "released" => tracing::info!(event_type, status, "processing lock"),
        _ => tracing::warn!(event_type, status, "processing lock"),
    }
}
