//! Encodes batches as commands and decodes replies, for both transports.

use std::borrow::Cow;
use std::fmt;

use crate::name::RESERVED;
use crate::{Batch, Commit, Error, Expect, Key, Position, Record, Refusal, Ttl, Value, Write, seq_of};

/// The largest count that is sent. No log has so many records, so a larger count means all of them.
pub(super) const MAX_COUNT: usize = u32::MAX as usize;

/// A command: its name and arguments.
pub(super) struct Command<'a>(Vec<Cow<'a, str>>);

impl<'a> Command<'a> {
    pub(super) fn of<const N: usize>(parts: [&'a str; N]) -> Command<'a> {
        Command(parts.into_iter().map(Cow::Borrowed).collect())
    }

    pub(super) fn parts(&self) -> &[Cow<'a, str>] {
        &self.0
    }

    /// `SET … NX …`, if the batch is only a put that expects no value. With `get`, the reply is the stored value.
    pub(super) fn set_if_absent(batch: &'a Batch, get: bool) -> Option<Command<'a>> {
        let [Write::Put { key, expect: Expect::Absent, value: Value::Text(text), ttl }] = batch.writes()
        else {
            return None;
        };
        let mut command = Command::of(["SET", key.as_str(), text, "NX"]);
        if get {
            command.0.push("GET".into());
        }
        if let Some(millis) = ttl.millis() {
            command.0.extend(["PX".into(), millis.to_string().into()]);
        }
        Some(command)
    }
}

/// `commit.lua`, by text and by hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    /// The script with the first line `head`.
    pub(super) fn new(head: &str) -> Script {
        let text = [head, include_str!("commit.lua")].concat();
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        Script { text, hash }
    }

    /// The call that applies batches, each with the client's comparisons for it: with the text (which the server then
    /// keeps), or by the hash alone. Without `publish` the publishes are left out.
    pub(super) fn call<'a>(
        &'a self,
        batches: impl Iterator<Item = (&'a Batch, &'a [Judged])>,
        with_text: bool,
        publish: bool,
    ) -> Command<'a> {
        let (mut keys, mut arguments): (Vec<Cow<'a, str>>, Vec<Cow<'a, str>>) = Default::default();
        for (batch, judged) in batches {
            let writes = || batch.writes().iter().filter(|w| publish || !matches!(w, Write::Publish { .. }));
            keys.extend(writes().flat_map(names));
            arguments.push(writes().count().to_string().into());
            arguments.extend(writes().flat_map(|write| fields(write, judged)));
        }
        let (name, script) = if with_text { ("EVAL", &self.text) } else { ("EVALSHA", &self.hash) };
        let mut parts: Vec<Cow<'a, str>> = vec![name.into(), script.into(), keys.len().to_string().into()];
        parts.extend(keys);
        parts.extend(arguments);
        Command(parts)
    }
}

/// The names of a write that the script uses: its key, or its log with the mark of a log that was cleared.
fn names(write: &Write) -> impl Iterator<Item = Cow<'_, str>> {
    let marked = match write {
        Write::Append { log, keep: Some(_), .. } | Write::Clear { log } => Some(log),
        _ => None,
    };
    let mark = marked.map(|log| Cow::Owned(format!("{}{RESERVED}cleared", log.as_str())));
    write.name().map(Cow::Borrowed).into_iter().chain(mark)
}

/// A stored value under a key of `put_if_newer` that the script cannot compare, and the client's comparison: whether
/// its `seq` is lower than the new one.
pub(super) struct Judged {
    pub(super) key: Key,
    there: String,
    older: bool,
}

/// The six fields of a write, as the head of `commit.lua` lists them.
fn fields<'a>(write: &'a Write, judged: &'a [Judged]) -> [Cow<'a, str>; 6] {
    let (expect, old) = match (write, write.expectation()) {
        (_, Some((_, Expect::Absent))) => ("absent", ""),
        (_, Some((_, Expect::Is(old)))) => ("is", old.as_str()),
        (_, Some((_, Expect::AbsentOr(old)))) => ("absent-or", old.as_str()),
        (Write::PutIfNewer { key, .. }, None) => match judged.iter().find(|judged| judged.key == *key) {
            Some(Judged { there, older: true, .. }) => ("older", there.as_str()),
            Some(Judged { there, older: false, .. }) => ("not-older", there.as_str()),
            None => ("", ""),
        },
        (_, None) => ("", ""),
    };
    let life = |ttl: &Ttl| ttl.millis().map_or("".into(), |millis| Cow::from(millis.to_string()));
    let none = || Cow::Borrowed("");
    let (what, new, ttl, extra) = match write {
        Write::Check { .. } => ("check", none(), none(), none()),
        Write::Put { value: Value::Text(text), ttl, .. } => ("put", text.into(), life(ttl), "text".into()),
        Write::Put { value: Value::PositionOf(n), ttl, .. } => {
            ("put", n.saturating_add(1).to_string().into(), life(ttl), "position".into())
        }
        Write::Delete { .. } => ("delete", none(), none(), none()),
        Write::PutIfNewer { seq, json, ttl, .. } => ("newer", json.into(), life(ttl), seq.to_string().into()),
        Write::Append { text, keep: None, .. } => ("extend", text.into(), none(), none()),
        Write::Append { text, keep: Some(keep), .. } => {
            let (what, about) = match keep.about.filter(|about| *about <= MAX_COUNT) {
                Some(about) => ("trim", about.max(1).to_string().into()),
                None => ("append", none()),
            };
            (what, text.into(), life(&keep.ttl), about)
        }
        Write::Clear { .. } => ("clear", none(), none(), none()),
        Write::Publish { channel, text } => ("publish", text.into(), none(), channel.as_str().into()),
    };
    [what.into(), expect.into(), old.into(), new, ttl, extra]
}

/// Shows only the command's name: the arguments are keys and values.
impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.0.first()).finish()
    }
}

/// The server's reply to one command.
pub(super) enum Reply {
    /// No value.
    Nil,
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// A list of replies.
    List(Vec<Reply>),
    /// The command failed.
    Error(ServerError),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(…)")
    }
}

/// An error reply. Its message may quote arguments, so it is reduced to a known cause.
#[derive(Clone, Debug)]
pub struct ServerError(Error, Cause);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    ScriptUnknown,
    HeadRefused,
    WrongType,
    Known,
    Unknown,
}

/// Codes of a server that accepts no writes at the moment. The script fails with them at its first write at the latest,
/// so nothing is written.
const TRANSIENT: [&str; 11] = [
    "OOM",
    "READONLY",
    "NOREPLICAS",
    "MISCONF",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
];

/// Messages of Upstash when the quota of the plan is used up: "ERR max requests limit exceeded", "ERR max daily request
/// limit exceeded", "ERR DB capacity quota exceeded", "ERR max concurrent connections exceeded".
const QUOTA_EXCEEDED: [&str; 3] = ["limit exceeded", "quota exceeded", "connections exceeded"];

/// Messages of a server that does not accept the first line of the script: an unknown flag, or keys that it considers
/// dynamic. (Redis before 7 accepts no such line.)
const HEAD_REFUSED: [&str; 5] =
    ["dynamic keys", "shebang", "script flag", "allow-key-locking", "unexpected symbol near '#'"];

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Error {
        error.0
    }
}

impl From<Error> for ServerError {
    fn from(error: Error) -> ServerError {
        ServerError(error, Cause::Known)
    }
}

impl ServerError {
    /// Classifies an error message (`CODE and some words`).
    pub(super) fn new(message: &str) -> ServerError {
        // An error inside a script may come wrapped: "ERR Error running script: @user_script:5: -READONLY …".
        let has_code = |code: &str| message.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| w == code);
        let lower = message.to_ascii_lowercase();
        let says = |words: &str| lower.contains(words);
        if has_code("NOSCRIPT") {
            return ServerError(Error::not_sent("the server does not know the script"), Cause::ScriptUnknown);
        }
        if HEAD_REFUSED.iter().any(|words| says(words)) {
            let error = Error::rejected("the server refuses the first line of the script");
            return ServerError(error, Cause::HeadRefused);
        }
        let code = message.split_whitespace().next().unwrap_or_default();
        let error = if has_code("WRONGTYPE") {
            return ServerError(Error::wrong_type(), Cause::WrongType);
        } else if says("last possible id") {
            Error::decode("a log that another program filled takes no more records")
        } else if ["WRONGPASS", "NOAUTH", "NOPERM", "Unauthorized"].iter().any(|code| has_code(code))
            // The message for a script whose user may not run a command.
            || says("can't run this command")
        {
            Error::rejected(format!("{}: the token or password is wrong, or may not do this", plain(code)))
        } else if says("max number of clients") {
            Error::not_sent("the server has as many clients as it takes")
        } else if let Some(code) = TRANSIENT.into_iter().find(|code| has_code(code)) {
            Error::not_sent(match code {
                "OOM" => "OOM: the server is out of memory".to_owned(),
                code => format!("{code}: the server cannot take writes now"),
            })
        } else if QUOTA_EXCEEDED.iter().any(|words| says(words)) {
            Error::not_sent("the server's plan is used up for now")
        } else if says("size exceeded") {
            Error::rejected("the request, a key or a record is larger than the server takes")
        } else {
            let error = Error::rejected(format!("{}: the server refused the command", plain(code)));
            return ServerError(error, Cause::Unknown);
        };
        ServerError(error, Cause::Known)
    }

    pub(super) fn is_script_unknown(&self) -> bool {
        self.1 == Cause::ScriptUnknown
    }

    pub(super) fn is_head_refused(&self) -> bool {
        self.1 == Cause::HeadRefused
    }

    pub(super) fn is_wrong_type(&self) -> bool {
        self.1 == Cause::WrongType
    }

    /// Whether it is none of the known errors.
    pub(super) fn is_unknown(&self) -> bool {
        self.1 == Cause::Unknown
    }
}

/// A server's error code, if it looks like one.
fn plain(code: &str) -> &str {
    let is_code = !code.is_empty() && code.len() <= 20 && code.bytes().all(|b| b.is_ascii_uppercase());
    if is_code { code } else { "an error" }
}

/// The server's answer to a batch.
pub(super) enum Outcome {
    /// Applied or refused.
    Done(Commit),
    /// Applied, but the script could not publish.
    Unpublished(Commit),
    /// Nothing is written: send the batch again with these comparisons.
    Unjudged(Vec<Judged>),
    /// Nothing is written: the key exists. Only the script shows whether that refuses the batch.
    Exists,
}

impl Reply {
    /// The replies to the batches of one call of the script. An error of the whole call is the reply to each.
    pub(super) fn of_each(self, batches: usize) -> Vec<Reply> {
        let error = match self {
            Reply::List(replies) if replies.len() == batches => return replies,
            Reply::Error(error) => error,
            _ => nonsense(),
        };
        (0..batches).map(|_| Reply::Error(error.clone())).collect()
    }

    /// Decodes the reply of `commit.lua` to `batch`, which was sent with the comparisons `judged`. After a reply that
    /// the script cannot produce, it is unknown whether the batch was applied.
    pub(super) fn outcome(self, batch: &Batch, judged: &[Judged]) -> Result<Outcome, ServerError> {
        let parts = match self {
            Reply::Error(error) => return Err(error),
            Reply::List(parts) => parts,
            _ => return Err(nonsense()),
        };
        let mut parts = parts.into_iter();
        match parts.next() {
            Some(Reply::Int(1)) => applied(parts, batch).map(Outcome::Done),
            Some(Reply::Int(3)) if batch.publishes() => applied(parts, batch).map(Outcome::Unpublished),
            Some(Reply::Int(0)) => refused(parts, batch).map(Outcome::Done),
            Some(Reply::Int(2)) => unjudged(parts, batch, judged).map(Outcome::Unjudged),
            Some(Reply::Int(4)) => match parts.next() {
                Some(Reply::Text(message)) => Err(ServerError::new(&message)),
                _ => Err(nonsense()),
            },
            _ => Err(nonsense()),
        }
    }

    /// Decodes the reply to a read, or to [`Command::set_if_absent`] with this `get`.
    pub(super) fn plain_outcome(self, batch: &Batch, get: bool) -> Result<Outcome, ServerError> {
        let is_read = batch.read_key().is_some();
        let get = get || is_read;
        match self {
            // A log, or the empty stream of another program.
            Reply::Error(error) if get && error.is_wrong_type() => Ok(Outcome::Exists),
            // A server that does not have the command.
            Reply::Error(error) if is_read && error.is_unknown() => Ok(Outcome::Exists),
            Reply::Error(error) => Err(error),
            Reply::Nil if !get => Ok(Outcome::Exists),
            Reply::Nil => Ok(Outcome::Done(Commit::Applied(Vec::new()))),
            Reply::Text(ok) if !get && ok == "OK" => Ok(Outcome::Done(Commit::Applied(Vec::new()))),
            Reply::Text(there) if get => {
                let found = batch.expectations().map(|(key, _)| (key.clone(), Some(there.clone())));
                Ok(Outcome::Done(Commit::Refused(Refusal::new(found))))
            }
            Reply::Text(_) | Reply::Int(_) | Reply::List(_) => Err(nonsense()),
        }
    }

    pub(super) fn text_or_nil(self) -> Result<Option<String>, Error> {
        match self {
            Reply::Nil => Ok(None),
            Reply::Text(text) => Ok(Some(text)),
            Reply::Error(error) => Err(error.into()),
            Reply::Int(_) | Reply::List(_) => Err(Error::unknown("a reply that is not a text")),
        }
    }

    /// The reply to XRANGE: `[[position, [field, value, …]], …]`. The record is the field `data`. An entry without it, which
    /// another program has added, is an empty record: it must not hide the others.
    pub(super) fn records(self, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let nonsense = || Error::unknown("the log's reply makes no sense");
        let Reply::List(entries) = self else {
            return Err(nonsense());
        };
        if entries.len() > limit {
            return Err(nonsense());
        }
        let mut last = after;
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let Reply::List(entry) = entry else {
                return Err(nonsense());
            };
            let Ok([Reply::Text(position), Reply::List(fields)]) = <[Reply; 2]>::try_from(entry) else {
                return Err(nonsense());
            };
            let position: Position = position.parse().map_err(|_| nonsense())?;
            if last >= Some(position) {
                return Err(nonsense());
            }
            last = Some(position);
            let mut fields = fields.into_iter();
            let text = loop {
                match (fields.next(), fields.next()) {
                    (Some(Reply::Text(name)), Some(Reply::Text(text))) if name == "data" => break text,
                    (Some(_), Some(_)) => {}
                    (None, None) => break String::new(),
                    _ => return Err(nonsense()),
                }
            };
            records.push(Record { position, text });
        }
        Ok(records)
    }
}

fn nonsense() -> ServerError {
    Error::unknown("the server's reply makes no sense").into()
}

/// `position, …`: one for each append.
fn applied(parts: impl Iterator<Item = Reply>, batch: &Batch) -> Result<Commit, ServerError> {
    let positions: Option<Vec<Position>> = parts
        .map(|part| match part {
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        })
        .collect();
    let appends = batch.writes().iter().filter(|write| matches!(write, Write::Append { .. })).count();
    positions.filter(|positions| positions.len() == appends).map(Commit::Applied).ok_or_else(nonsense)
}

/// `n, there, n, there, …`: writes of the batch by number (from 1, publishes not counted), in order, each with the stored
/// value.
fn named(
    mut parts: impl Iterator<Item = Reply>,
    batch: &Batch,
) -> Result<Vec<(&Write, Option<String>)>, ServerError> {
    let mut writes = batch.writes().iter().filter(|write| write.name().is_some()).zip(1..);
    let mut found = Vec::new();
    while let Some(n) = parts.next() {
        let Reply::Int(n) = n else {
            return Err(nonsense());
        };
        let (write, _) = writes.find(|(_, at)| *at == n).ok_or_else(nonsense)?;
        found.push((write, parts.next().ok_or_else(nonsense)?.text_or_nil()?));
    }
    if found.is_empty() { Err(nonsense()) } else { Ok(found) }
}

/// The expectations that failed. A reply that lists one that holds is invalid.
fn refused(parts: impl Iterator<Item = Reply>, batch: &Batch) -> Result<Commit, ServerError> {
    let mismatch =
        |(write, there): (&Write, Option<String>)| match (write.expectation(), write.existing_log()) {
            (Some((key, expect)), _) if !expect.holds(there.as_deref()) => Ok((key.clone(), there)),
            (_, Some(log)) if there.is_none() => Ok((Key::from(log), None)),
            _ => Err(nonsense()),
        };
    let found = named(parts, batch)?.into_iter().map(mismatch).collect::<Result<Vec<_>, _>>()?;
    Ok(Commit::Refused(Refusal::new(found)))
}

/// Compares the values that the script could not compare. A value that the client has compared before, or that is not
/// under a key of `put_if_newer`, makes the reply invalid.
fn unjudged(
    parts: impl Iterator<Item = Reply>,
    batch: &Batch,
    judged: &[Judged],
) -> Result<Vec<Judged>, ServerError> {
    let judge = |(write, there): (&Write, Option<String>)| match (write, there) {
        (Write::PutIfNewer { key, seq, .. }, Some(there))
            if !judged.iter().any(|judged| judged.key == *key && judged.there == there) =>
        {
            let older = seq_of(&there).is_none_or(|there| there < *seq);
            Ok(Judged { key: key.clone(), there, older })
        }
        _ => Err(nonsense()),
    };
    named(parts, batch)?.into_iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn what_passes_is_unavailable_and_was_not_applied() {
        for message in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 4ca2, on @user_script:119.",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY You can't write",
            "ERR Error running script: NOREPLICAS Not enough good replicas to write.",
            "ERR Error running script (call to f_1): @user_script:5: -MISCONF Errors writing to the AOF file",
            "ERR user_script:119: OOM command not allowed when used memory > 'maxmemory'.",
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
            "ERR max daily request limit exceeded. Limit: 10000, Usage: 10000. See https://upstash.com for details",
            "ERR DB capacity quota exceeded",
            "ERR Error running script: ERR DB capacity quota exceeded",
            "ERR max concurrent connections exceeded",
            "ERR max number of clients reached",
        ] {
            let error = ServerError::new(message);
            assert!(!error.is_unknown(), "{message}");
            let error = Error::from(error);
            assert!(error.is_retryable() && !error.maybe_applied(), "{message}: {error:?}");
        }
    }

    #[test]
    fn what_stays_is_rejected() {
        for (message, unknown) in [
            ("ERR max request size exceeded. Limit: 1048576 bytes, Actual: 2000000 bytes", false),
            ("ERR max single record size exceeded", false),
            ("WRONGPASS invalid or missing auth token", false),
            ("NOPERM this user has no permissions to run the 'set' command", false),
            ("ERR user_script:90: NOPERM the user may not do all of the batch", false),
            ("ERR The user executing the script can't run this command or subcommand script: 3f2", false),
            ("ERR unknown command 'ROOM'", true),
            ("ERR syntax error", true),
            ("ERR This Redis command is not allowed from script", true),
            ("", true),
        ] {
            let error = ServerError::new(message);
            assert_eq!(error.is_unknown(), unknown, "{message}");
            assert_eq!(Error::from(error).kind(), ErrorKind::Rejected, "{message}");
        }
    }

    #[test]
    fn a_refused_first_line_is_recognised() {
        for message in [
            "ERR Unexpected flag in script shebang: allow-key-locking",
            "ERR Unknown script flag 'allow-key-locking'",
            "ERR Dynamic keys are not allowed",
            "ERR Error running script: @user_script:3: Dynamic keys are not allowed",
            "ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
        ] {
            assert!(ServerError::new(message).is_head_refused(), "{message}");
        }
    }
}
