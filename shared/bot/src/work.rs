//! Handles one event: its writes are committed before the reply is sent, and its lock is released after it.

use std::time::Duration;

use metrics::{counter, histogram};
use onetap_idem::{RecordOutcome, Run};
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind};
use onetap_store::lease::ReleaseOutcome;
use onetap_store::{Batch, Commit, Edit, Error, Lease, Round, Values, edit};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Step, Unwritten};
use crate::claims::{Begun, EventClaim, Marker, count_dedupe};
use crate::locks::LockOutcome;
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
    let Begun { incoming, ask, claim, lock, known } = begun;
    let event = incoming.event;
    let Some(ask) = ask else { return ignored(event).into() };
    let ask = Asked { session, bot, incoming, ask: &ask };
    match (claim, lock) {
        (EventClaim::Elsewhere, _) => Ended::Elsewhere.into(),
        // Its writes were committed by a run that may not have come to reply.
        (EventClaim::Done(Some(Marker::Answer(answer))), _) => {
            let context = Context::new(incoming, session, Values::default(), None);
            match ask.reply_to_written(&context, answer).await.ended() {
                Ended::Failed => Ended::Failed.into(),
                _ => Ended::Duplicate.into(),
            }
        }
        (EventClaim::Done(_), _) => Ended::Duplicate.into(),
        (EventClaim::Ours(run), LockOutcome::Busy(message)) => {
            let message = message.into();
            let replied = reply(session, event, &message).await;
            let replied = if run.is_none() { replied.of_kept_nowhere() } else { replied };
            let ended = replied.ended();
            let record = run.map(|run| MarkerWrite::after(run, replied, message));
            finish(session, event, ended, LastWrites { record, ..LastWrites::default() }).await;
            if ended == Ended::Handled { Ended::Busy.into() } else { ended.into() }
        }
        // A busy reply would finish the event. The lock expires, and then the redelivered event can be handled.
        (EventClaim::Ours(run), LockOutcome::LeftBehind) => {
            let ended = Ended::Elsewhere;
            finish(session, event, ended, LastWrites::of(run, ended)).await;
            ended.into()
        }
        (EventClaim::Ours(run), LockOutcome::Held(lease)) => ask.work(known, run, Some(lease)).await,
        (EventClaim::Ours(run), LockOutcome::Unlocked) => ask.work(known, run, None).await,
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

impl<B: Bot> Asked<'_, B> {
    /// Does the work of an event that is ours.
    async fn work(&self, known: Values, mut run: Option<Run>, lease: Option<Lease>) -> Ending {
        let (session, event) = (self.session, self.incoming.event);
        let effects = run.as_ref().map(Run::effect_keys);
        let context = Context::new(self.incoming, session, known, effects);
        let Answer { messages, change, to_keep, comes_again, extensions } = self.answer(&context).await;
        let change = match change {
            Some(change) if session.store_is_up() => change,
            unwritten => {
                let messages = match (&unwritten, messages) {
                    (Some(change), None) => change.unwritten.messages(self.bot),
                    (_, messages) => messages,
                };
                let (ended, record) = match messages {
                    Some(messages) => {
                        let replied = reply(session, event, &messages).await;
                        let replied = if unwritten.is_some() { replied.of_kept_nowhere() } else { replied };
                        (replied.ended(), run.map(|run| MarkerWrite::after(run, replied, messages)))
                    }
                    None => {
                        // Without a reply, the redelivered event can be written.
                        let ended =
                            if comes_again || unwritten.is_some() { Ended::Failed } else { Ended::Handled };
                        (ended, run.map(|run| MarkerWrite::Ended(run, ended)))
                    }
                };
                finish(session, event, ended, LastWrites { record, to_keep, lease }).await;
                return Ending { ended, extensions };
            }
        };
        let Change { edit, step, is_repeatable, unwritten } = change;
        let written = write(session, run.as_mut(), edit, step, messages.as_ref()).await;
        if run.is_some() {
            count_dedupe(match &written {
                Ok(_) => "executed",
                Err(edit::Error::TakenOver) => "lost_lease",
                Err(_) => "unrecorded",
            });
        }
        let mut answered = None;
        let ended = match written {
            Ok(Marker::Answer(written)) => {
                let replied = self.reply_to_written(&context, written.clone()).await;
                let has_claim = run.is_some();
                // Whoever finds the marker from now on need not send the answer again.
                let sent = run.filter(|_| replied.ended() == Ended::Handled);
                answered = sent.map(|run| {
                    MarkerWrite::Answered(
                        run.amend_batch(&Marker::Answer(written), &Marker::Answered),
                        replied,
                    )
                });
                match replied {
                    // No marker tells the redelivery that it is written: it would write it again.
                    _ if !has_claim && !is_repeatable => Ended::Handled,
                    replied => replied.ended(),
                }
            }
            Ok(Marker::Answered) => Ended::Handled,
            Err(edit::Error::TakenOver) => Ended::Elsewhere,
            Err(error) => self.reply_to_failed_write(messages, unwritten, run.is_some(), &error).await,
        };
        finish(session, event, ended, LastWrites { record: answered, to_keep, lease }).await;
        Ending { ended, extensions }
    }

    /// The bot's answer, if it is there in time for the reply.
    async fn answer(&self, context: &Context<'_>) -> Answer {
        let unavailable = || Answer::say(self.bot.unavailable());
        match timeout_at(context.deadline(), self.bot.answer(context, self.ask)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::error!(%error, "the bot has failed to answer an event");
                unavailable()
            }
            Err(_) => {
                tracing::error!("the bot has not answered an event in time");
                unavailable()
            }
        }
    }

    /// Replies to an event whose writes are committed. The run that committed them may have died before that.
    async fn reply_to_written(&self, context: &Context<'_>, messages: Messages) -> Replied {
        let messages = self.bot.after_commit(context, self.ask, messages).await;
        reply(self.session, self.incoming.event, &messages).await
    }

    /// Replies to an event whose writes the store did not confirm, if a reply is right.
    async fn reply_to_failed_write(
        &self,
        messages: Option<Messages>,
        unwritten: Unwritten,
        has_claim: bool,
        error: &edit::Error<Error>,
    ) -> Ended {
        let maybe_written = matches!(error, edit::Error::Unwritten(error) if error.maybe_applied());
        let (session, event) = (self.session, self.incoming.event);
        if let edit::Error::Step(error) = error {
            tracing::error!(%error, "the change of an event has failed");
        }
        match messages {
            // They are right whether the change was written or not.
            Some(messages) => reply(session, event, &messages).await.ended(),
            // The writes may be applied: if the bot said "try again", the user could enter it twice. LINE delivers the event
            // again, and that run finds the marker and replies, or finds none and does the work.
            None if maybe_written && has_claim => Ended::Failed,
            None => match unwritten.messages(self.bot) {
                Some(messages) => reply(session, event, &messages).await.of_kept_nowhere().ended(),
                None => Ended::Failed,
            },
        }
    }
}

impl Unwritten {
    /// What the user is told; `None` if LINE is to deliver the event again.
    fn messages(&self, bot: &impl Bot) -> Option<Messages> {
        match self {
            Unwritten::Unavailable => Some(bot.unavailable()),
            Unwritten::Say(messages) => Some(messages.clone()),
            Unwritten::Again => None,
        }
    }
}

/// Commits a change together with the marker that has its answer: the step's own, else `messages`.
async fn write(
    session: &Session<'_>,
    run: Option<&mut Run>,
    edit: Edit<'static>,
    mut step: Step,
    messages: Option<&Messages>,
) -> Result<Marker, edit::Error<Error>> {
    let edit = edit.deadline(Some(session.before_reply()));
    let store = &session.store();
    let step = |there: &_| {
        let (writes, own) = step(there)?;
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
            MarkerWrite::Unheard(run, answer) => run.commit_batch(&Marker::Answer(answer.clone())),
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

impl LastWrites {
    /// Of an event that did no work.
    fn of(run: Option<Run>, ended: Ended) -> LastWrites {
        LastWrites { record: run.map(|run| MarkerWrite::Ended(run, ended)), ..LastWrites::default() }
    }
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
