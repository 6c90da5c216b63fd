//! The work of one event: what it writes is committed before its reply, everything else after it.

use metrics::{counter, histogram};
use onetap_line::Messages;
use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind};
use onetap_store::idem::{Committed, Run};
use onetap_store::lease::Release;
use onetap_store::{Batch, Commit, Error, Lease, Round, edit};
use tokio::time::Instant;

use crate::Ended;
use crate::claims::{Begun, Lock, Marker, Turn, count_dedupe};
use crate::look_up::look_up;
use crate::plan::Plan;
use crate::replies;
use crate::reply::reply;
use crate::session::Session;
use crate::user_edit::UserEdit;

/// Handles one event, and says how it ended.
pub(crate) async fn handle_event(session: &Session<'_>, begun: Begun<'_>) -> Ended {
    let start = Instant::now();
    let Begun { event, plan, turn, lock } = begun;
    if event.is_redelivery {
        counter!("line_redelivery_total").increment(1);
    }
    let ended = match (turn, lock) {
        _ if matches!(plan, Plan::Ignore) => ignored(event),
        (Turn::Elsewhere, _) => Ended::Elsewhere,
        // Its writes were committed by a run that may not have come to reply.
        (Turn::Done(Some(Marker::Answer(answer))), _) => match reply(session, event, &answer).await {
            Ended::Failed => Ended::Failed,
            _ => Ended::Duplicate,
        },
        (Turn::Done(_), _) => Ended::Duplicate,
        (Turn::Ours(run), Lock::Busy) => {
            let ended = reply(session, event, &replies::text(replies::PROCESSING)).await;
            finish(session, event, run.map(|run| Record::Ended(run, ended)), None).await;
            if ended == Ended::Handled { Ended::Busy } else { ended }
        }
        // A busy reply would be the end of it. The lock ends by itself, and then the event can be handled.
        (Turn::Ours(run), Lock::LeftBehind) => {
            finish(session, event, run.map(|run| Record::Ended(run, Ended::Elsewhere)), None).await;
            Ended::Elsewhere
        }
        (Turn::Ours(run), Lock::Held(lease)) => work(session, event, &plan, run, Some(lease)).await,
        (Turn::Ours(run), Lock::Open) => work(session, event, &plan, run, None).await,
    };
    let kind = event.kind.label();
    counter!("line_webhook_events_total", "event_type" => kind, "outcome" => ended.label()).increment(1);
    histogram!("processing_duration_seconds", "event_type" => kind).record(start.elapsed());
    tracing::info!(event_type = kind, outcome = ended.label(), "event");
    ended
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
    mut run: Option<Run>,
    lease: Option<Lease>,
) -> Ended {
    let (answer, user_edit) = look_up(session, event, plan).await;
    let user_edit = match user_edit {
        Some(user_edit) if session.store_is_up() => user_edit,
        unwritten => {
            let ended = match &answer {
                Some(answer) => reply(session, event, answer).await,
                // Nothing is said, so that another delivery can write it.
                None if unwritten.is_some() => Ended::Failed,
                None => Ended::Handled,
            };
            finish(session, event, run.map(|run| Record::Ended(run, ended)), lease).await;
            return ended;
        }
    };
    let written = write(session, run.as_mut(), user_edit).await;
    if run.is_some() {
        count_dedupe(match &written {
            Ok(_) => "executed",
            Err(edit::Error::Lost) => "lost_lease",
            Err(_) => "unrecorded",
        });
    }
    let mut answered = None;
    let ended = match written {
        Ok(Marker::Answer(written)) => {
            let ended = reply(session, event, &written).await;
            // Whoever finds the marker from now on need not send the answer again.
            let sent = run.filter(|_| ended == Ended::Handled);
            answered = sent
                .map(|run| Record::Answered(run.amend_batch(&Marker::Answer(written), &Marker::Answered)));
            ended
        }
        Ok(Marker::Answered) => Ended::Handled,
        Err(edit::Error::Lost) => Ended::Elsewhere,
        Err(error) => unwritten(session, event, plan, answer, &error).await,
    };
    finish(session, event, answered, lease).await;
    ended
}

/// Commits the edit together with the marker that has its answer.
async fn write(
    session: &Session<'_>,
    run: Option<&mut Run>,
    mut user_edit: UserEdit,
) -> Result<Marker, edit::Error<Error>> {
    let edit = user_edit.edit().deadline(Some(session.before_reply()));
    let store = &*session.webhook.store;
    let step = |there: &_| {
        let (writes, answer) = user_edit.step(there);
        Ok((writes, answer.map_or(Marker::Answered, Marker::Answer)))
    };
    let written = match run {
        Some(run) => edit.record(store, run, step).await,
        None => edit.apply(store, step).await,
    };
    if let Err(edit::Error::Unread(error) | edit::Error::Unwritten(error)) = &written {
        session.note_failure(error);
    }
    written
}

/// What is said where the store did not confirm what an event writes.
async fn unwritten(
    session: &Session<'_>,
    event: &Event,
    plan: &Plan,
    answer: Option<Messages>,
    error: &edit::Error<Error>,
) -> Ended {
    let maybe_written = matches!(error, edit::Error::Unwritten(error) if error.maybe_applied());
    match (plan, answer) {
        // A forecast is right whether the visit was saved or not.
        (Plan::Forecast(_), Some(answer)) => reply(session, event, &answer).await,
        // To be told to try again, the user would do again what may be done. The redelivery finds the marker and
        // answers, or finds none and does the work.
        _ if maybe_written => Ended::Failed,
        (Plan::Unfollow, _) => Ended::Failed,
        _ => reply(session, event, &replies::text(replies::BUSY)).await,
    }
}

/// The last that is recorded of an event.
enum Record {
    /// How an event that writes nothing ended.
    Ended(Run, Ended),
    /// That the answer of an event that writes something was sent.
    Answered(Batch),
}

impl Record {
    /// An event that comes again gives its claim up.
    fn batch(&self) -> Batch {
        match self {
            Record::Ended(run, ended) if ended.comes_again() => run.abandon_batch(),
            Record::Ended(run, _) => run.commit_batch(&Marker::Answered),
            Record::Answered(amended) => amended.clone(),
        }
    }

    /// Counts the outcome of the event's dedupe, by the store's answer to the batch.
    fn count(self, answer: Result<Commit, Error>) {
        count_dedupe(match (self, answer) {
            // Counted when it was written.
            (Record::Answered(_), _) => return,
            (Record::Ended(_, Ended::Elsewhere), _) => "in_progress",
            (Record::Ended(_, Ended::Failed), _) => "failed",
            (Record::Ended(run, _), Ok(answer)) => match run.committed(answer) {
                Committed::Recorded => "executed",
                Committed::Refused(_) | Committed::Lost => "lost_lease",
            },
            (Record::Ended(..), Err(_)) => "unrecorded",
        });
    }
}

/// Sends the event's last record and releases its lock, in one round trip. A failure is a warning: the claim and the
/// lock end by themselves.
async fn finish(session: &Session<'_>, event: &Event, record: Option<Record>, lease: Option<Lease>) {
    let mut round = Round::new();
    let record = record.map(|record| (round.add(record.batch()), record));
    let lease = lease.map(|lease| (round.add(lease.release_batch()), lease));
    let mut answers = session.send(round).await;
    if let Some((ticket, record)) = record {
        record.count(answers.take(ticket));
    }
    if let Some((ticket, lease)) = lease {
        log_release(event, answers.take(ticket).map(|answer| lease.released(answer)));
    }
}

fn log_release(event: &Event, release: Result<Release, Error>) {
    let status = match release {
        Ok(Release::Released) => "released",
        Ok(Release::Outlasted) => "outlasted",
        Err(_) => "failed",
    };
    counter!("processing_lock_release_total", "status" => status).increment(1);
    let event_type = event.kind.label();
    match status {
        "released" => tracing::info!(event_type, status, "processing lock"),
        _ => tracing::warn!(event_type, status, "processing lock"),
    }
}
