//! Handles one event: its writes are committed before the reply is sent, and its lock is released after it.

use std::time::Duration;

use metrics::{counter, histogram};
use onetap_idem::{RecordOutcome, Run};
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind};
use onetap_store::lease::ReleaseOutcome;
use onetap_store::{Batch, Commit, Error, Lease, Round, Values, edit};
use tokio::time::Instant;

use crate::claims::{Begun, EventClaim, LockOutcome, Marker, count_dedupe};
use crate::erasing::{Removal, hide_surplus, remove_hidden_records};
use crate::look_up::{Findings, erasure, look_up};
use crate::plan::Plan;
use crate::replies;
use crate::reply::{Replied, reply};
use crate::session::Session;
use crate::user_edit::UserEdit;
use crate::{Ended, Ending};

/// Handles one event, and says how it ended.
pub(crate) async fn handle_event(session: &Session<'_>, begun: Begun<'_>) -> Ending {
    let start = Instant::now();
    let Begun { event, plan, claim, lock, known } = begun;
    if event.is_redelivery {
        counter!("line_redelivery_total").increment(1);
    }
    let ending: Ending = match (claim, lock) {
        _ if matches!(plan, Plan::Ignore) => ignored(event).into(),
        (EventClaim::Elsewhere, _) => Ended::Elsewhere.into(),
        // Its writes were committed by a run that may not have come to reply.
        (EventClaim::Done(Some(Marker::Answer(answer))), _) => {
            match reply_to_written(session, event, &plan, &answer).await.ended() {
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
        (EventClaim::Ours(run), LockOutcome::Held(lease)) => {
            work(session, event, &plan, known, run, Some(lease)).await
        }
        (EventClaim::Ours(run), LockOutcome::Unlocked) => work(session, event, &plan, known, run, None).await,
    };
    let (kind, ended) = (event.kind.label(), ending.ended);
    counter!("line_webhook_events_total", "event_type" => kind, "outcome" => ended.label()).increment(1);
    histogram!("processing_duration_seconds", "event_type" => kind).record(start.elapsed());
    tracing::info!(event_type = kind, outcome = ended.label(), "event");
    ending
}

fn ignored(event: &Event) -> Ended {
    match event.kind {
        Kind::Skipped(_) | Kind::Other(_) | Kind::Message(IncomingMessage::Other(_)) => Ended::Skipped,
        _ if event.source.chat == Chat::Unknown => Ended::Skipped,
        _ => Ended::Ignored,
    }
}

/// Does the work of an event that is ours.
async fn work(
    session: &Session<'_>,
    event: &Event,
    plan: &Plan,
    known: Values,
    mut run: Option<Run>,
    lease: Option<Lease>,
) -> Ending {
    let Findings { answer, user_edit, forecast, forecast_to_store } =
        look_up(session, event, plan, known).await;
    let user_edit = match user_edit {
        Some(user_edit) if session.store_is_up() => user_edit,
        not_written => {
            let (ended, record) = match answer {
                Some(answer) => {
                    let replied = reply(session, event, &answer).await;
                    let replied = if not_written.is_some() { replied.of_kept_nowhere() } else { replied };
                    (replied.ended(), run.map(|run| MarkerWrite::after(run, replied, answer)))
                }
                // No reply: the redelivered event can write it.
                None if not_written.is_some() => {
                    (Ended::Failed, run.map(|run| MarkerWrite::Ended(run, Ended::Failed)))
                }
                None => (Ended::Handled, run.map(|run| MarkerWrite::Ended(run, Ended::Handled))),
            };
            finish(session, event, ended, LastWrites { record, forecast_to_store, lease }).await;
            return Ending { ended, forecast };
        }
    };
    let written = write(session, run.as_mut(), user_edit).await;
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
            let replied = reply_to_written(session, event, plan, &written).await;
            let has_claim = run.is_some();
            // Whoever finds the marker from now on need not send the answer again.
            let sent = run.filter(|_| replied.ended() == Ended::Handled);
            answered = sent.map(|run| {
                MarkerWrite::Answered(run.amend_batch(&Marker::Answer(written), &Marker::Answered), replied)
            });
            match replied {
                // No marker tells the redelivery that it is written: it would write it again.
                _ if !has_claim && matches!(plan, Plan::Ledger(..) | Plan::Erase) => Ended::Handled,
                replied => replied.ended(),
            }
        }
        Ok(Marker::Answered) => Ended::Handled,
        Err(edit::Error::TakenOver) => Ended::Elsewhere,
        Err(error) => reply_to_failed_write(session, event, plan, answer, run.is_some(), &error).await,
    };
    finish(session, event, ended, LastWrites { record: answered, forecast_to_store, lease }).await;
    Ending { ended, forecast }
}

/// Commits the edit together with the marker that has its answer.
async fn write(
    session: &Session<'_>,
    run: Option<&mut Run>,
    mut user_edit: UserEdit,
) -> Result<Marker, edit::Error<Error>> {
    let edit = user_edit.edit().deadline(Some(session.before_reply()));
    let store = &session.store();
    if let UserEdit::Erase(erasure) = &user_edit {
        hide_surplus(session, erasure).await?;
    }
    let step = |there: &_| {
        let (writes, answer) = user_edit.step(there)?;
        Ok((writes, answer.map_or(Marker::Answered, Marker::Answer)))
    };
    let written = match run {
        Some(run) => run.edit(store, &edit, step).await,
        None => edit.apply(store, step).await,
    };
    written.inspect_err(|error| session.note_failed_edit(error))
}

/// Replies to an event whose writes are committed. An erasure first removes from the store what it has hidden; the run that
/// committed it may have died before that.
async fn reply_to_written(session: &Session<'_>, event: &Event, plan: &Plan, answer: &Messages) -> Replied {
    let user = event.source.user_id.as_deref().filter(|_| matches!(plan, Plan::Erase));
    let user = user.filter(|_| *answer == replies::erased());
    if let Some(Ok(erasure)) = user.map(|user| erasure(session, user))
        && let Removal::Unfinished = remove_hidden_records(session, &erasure).await
    {
        return reply(session, event, &replies::erasure_unfinished()).await;
    }
    reply(session, event, answer).await
}

/// Replies to an event whose writes the store did not confirm, if a reply is right.
async fn reply_to_failed_write(
    session: &Session<'_>,
    event: &Event,
    plan: &Plan,
    answer: Option<Messages>,
    has_claim: bool,
    error: &edit::Error<Error>,
) -> Ended {
    let maybe_written = matches!(error, edit::Error::Unwritten(error) if error.maybe_applied());
    match (plan, answer) {
        // A forecast is right whether the visit was saved or not.
        (Plan::Forecast(_), Some(answer)) => reply(session, event, &answer).await.ended(),
        // The writes may be applied: if the bot said "try again", the user could enter it twice. LINE delivers the event
        // again, and that run finds the marker and replies, or finds none and does the work.
        _ if maybe_written && has_claim => Ended::Failed,
        (Plan::Unfollow, _) => Ended::Failed,
        (plan, answer) => {
            let answer = answer.filter(|_| matches!(plan, Plan::Ledger(..)));
            let answer = answer.unwrap_or_else(|| replies::text(replies::BUSY));
            reply(session, event, &answer).await.of_kept_nowhere().ended()
        }
    }
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
    /// Keeps the forecast that the event fetched.
    forecast_to_store: Option<Batch>,
    /// The lock to be released.
    lease: Option<Lease>,
}

impl LastWrites {
    /// Of an event that did no work.
    fn of(run: Option<Run>, ended: Ended) -> LastWrites {
        LastWrites { record: run.map(|run| MarkerWrite::Ended(run, ended)), ..LastWrites::default() }
    }
}

/// Sends the last writes of an event, in one round trip. A failure is a warning: the claim and the lock end by themselves, and
/// the forecast is fetched again.
async fn finish(session: &Session<'_>, event: &Event, ended: Ended, last: LastWrites) {
    let LastWrites { record, forecast_to_store, lease } = last;
    // That LINE accepted the answer is not worth a round trip of its own: a redelivery would send the answer again, and LINE
    // refuses a used token.
    if let (Some(MarkerWrite::Answered(_, Replied::Accepted)), None, None) =
        (&record, &forecast_to_store, &lease)
    {
        return;
    }
    let mut round = Round::new();
    let record = record.map(|record| (round.add(record.batch()), record));
    // A refusal means that another instance has kept one meanwhile.
    let _ = forecast_to_store.map(|batch| round.add(batch));
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
    match &session.webhook.config.lock {
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
