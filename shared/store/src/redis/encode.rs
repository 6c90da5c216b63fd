//! Batches as commands, and replies as answers: what both transports share.

use std::borrow::Cow;
use std::fmt;

use crate::{Batch, Commit, Error, Expect, Mismatch, Position, Record, Ttl, Value, Write};

/// A command: its name and arguments.
pub struct Command<'a>(Vec<Cow<'a, str>>);

impl<'a> Command<'a> {
    pub(super) fn of<const N: usize>(parts: [&'a str; N]) -> Command<'a> {
        Command(parts.into_iter().map(Cow::Borrowed).collect())
    }

    pub(super) fn parts(&self) -> &[Cow<'a, str>] {
        &self.0
    }

    /// `SET … NX GET PX …`, if that is all the batch is.
    pub(super) fn set_if_absent(batch: &'a Batch) -> Option<Command<'a>> {
        let [Write::Put { key, expect: Expect::Absent, value: Value::Text(text), ttl }] = batch.writes()
        else {
            return None;
        };
        let mut command = Command::of(["SET", key.as_str(), text, "NX", "GET"]);
        if let Some(millis) = ttl.millis() {
            command.0.extend(["PX".into(), millis.to_string().into()]);
        }
        Some(command)
    }
}

/// A script, by text and by hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    pub(super) fn new(head: &str, body: &str) -> Script {
        let text = [head, body].concat();
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        Script { text, hash }
    }

    /// The call that runs `batch`: with the text (which the server then keeps), or by the hash alone.
    pub(super) fn call<'a>(&'a self, batch: &'a Batch, with_text: bool, publish: bool) -> Command<'a> {
        let writes = || batch.writes().iter().filter(|w| publish || !matches!(w, Write::Publish { .. }));
        let keys: Vec<Cow<'a, str>> = writes().filter_map(|w| w.name().map(Cow::Borrowed)).collect();
        let (name, script) = if with_text { ("EVAL", &self.text) } else { ("EVALSHA", &self.hash) };
        let mut parts: Vec<Cow<'a, str>> = vec![name.into(), script.into(), keys.len().to_string().into()];
        parts.extend(keys);
        parts.extend(writes().flat_map(fields));
        Command(parts)
    }
}

/// The six fields of a write, as the head of `commit.lua` lists them.
fn fields(write: &Write) -> [Cow<'_, str>; 6] {
    let (expect, old) = match write.expectation() {
        None => ("", ""),
        Some((_, Expect::Absent)) => ("absent", ""),
        Some((_, Expect::Is(old))) => ("is", old.as_str()),
        Some((_, Expect::AbsentOr(old))) => ("absent-or", old.as_str()),
    };
    let life = |ttl: &Ttl| ttl.millis().map_or("".into(), |millis| Cow::from(millis.to_string()));
    let none = || Cow::Borrowed("");
    let (what, new, ttl, extra) = match write {
        Write::Check { .. } => ("check", none(), none(), none()),
        Write::Put { value: Value::Text(text), ttl, .. } => ("put", text.into(), life(ttl), "text".into()),
        Write::Put { value: Value::PositionOf(n), ttl, .. } => {
            ("put", (n + 1).to_string().into(), life(ttl), "position".into())
        }
        Write::Delete { .. } => ("delete", none(), none(), none()),
        Write::PutIfNewer { seq, json, ttl, .. } => ("newer", json.into(), life(ttl), seq.to_string().into()),
        Write::Append { text, keep, .. } => {
            let about = keep.about.map_or("".into(), |n| Cow::from(n.max(1).to_string()));
            ("append", text.into(), life(&keep.ttl), about)
        }
        Write::Publish { channel, text } => ("publish", text.into(), none(), channel.as_str().into()),
    };
    [what.into(), expect.into(), old.into(), new, ttl, extra]
}

/// Arguments are keys and values: only the name is shown.
impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.0.first()).finish()
    }
}

/// What a server answers to one command.
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// Several.
    List(Vec<Reply>),
    /// It did not do it.
    Error(ServerError),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(…)")
    }
}

/// An error that the server itself reported. It may quote arguments, so that only what it is known by is kept.
#[derive(Debug)]
pub struct ServerError(Error, Cause);

#[derive(Debug, PartialEq)]
enum Cause {
    ScriptUnknown,
    PublishForbidden,
    Other,
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Error {
        error.0
    }
}

impl From<Error> for ServerError {
    fn from(error: Error) -> ServerError {
        ServerError(error, Cause::Other)
    }
}

impl ServerError {
    /// What `message` (`CODE and some words`) means to us.
    pub(super) fn new(message: &str) -> ServerError {
        // An error inside a script may come wrapped: "ERR Error running script: WRONGTYPE …".
        let says = |word: &str| message.contains(word);
        let code = message.split_whitespace().next().unwrap_or_default();
        if says("NOSCRIPT") {
            return ServerError(Error::not_sent("the server does not know the script"), Cause::ScriptUnknown);
        }
        if says("not allowed from script") {
            let error = Error::rejected("the server forbids a command inside a script");
            return ServerError(error, Cause::PublishForbidden);
        }
        let error = if says("WRONGTYPE") {
            Error::decode("WRONGTYPE: a key or log holds a value of another kind")
        } else if says("WRONGPASS") || says("NOAUTH") || says("NOPERM") || says("Unauthorized") {
            Error::rejected(format!("{}: the token or password is wrong, or may not do this", plain(code)))
        } else if says("max number of clients") {
            Error::not_sent("the server has as many clients as it takes")
        } else if says("OOM") {
            Error::not_sent("OOM: the server is out of memory")
        } else if ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "MOVED", "ASK"]
            .contains(&code)
        {
            Error::not_sent(format!("{}: the server cannot take writes now", plain(code)))
        } else {
            Error::rejected(format!("{}: the server refused the command", plain(code)))
        };
        ServerError(error, Cause::Other)
    }

    /// See [`Error::after_a_lost_reply`].
    pub(super) fn after_a_lost_reply_if(self, lost: bool) -> ServerError {
        if lost { ServerError(self.0.after_a_lost_reply(), self.1) } else { self }
    }

    pub(super) fn maybe_applied(&self) -> bool {
        self.0.maybe_applied()
    }

    pub(super) fn is_script_unknown(&self) -> bool {
        self.1 == Cause::ScriptUnknown
    }

    pub(super) fn is_publish_forbidden(&self) -> bool {
        self.1 == Cause::PublishForbidden
    }
}

/// A server's error code, if it looks like one.
fn plain(code: &str) -> &str {
    let is_code = !code.is_empty() && code.len() <= 20 && code.bytes().all(|b| b.is_ascii_uppercase());
    if is_code { code } else { "an error" }
}

impl Reply {
    /// The reply of `commit.lua` to `batch`.
    pub(super) fn commit(self, batch: &Batch) -> Result<Commit, ServerError> {
        let nonsense = || ServerError::from(Error::unknown("the script's reply makes no sense"));
        let mut parts = match self {
            Reply::Error(error) => return Err(error),
            Reply::List(parts) => parts.into_iter(),
            _ => return Err(nonsense()),
        };
        let applied = match parts.next() {
            Some(Reply::Int(1)) => true,
            Some(Reply::Int(0)) => false,
            _ => return Err(nonsense()),
        };
        if applied {
            let positions = parts.map(|part| part.text_or_nil()?.unwrap_or_default().parse());
            return positions.collect::<Result<_, Error>>().map(Commit::Applied).map_err(|_| nonsense());
        }
        let named: Vec<&Write> = batch.writes().iter().filter(|write| write.name().is_some()).collect();
        let mut refusal = Vec::new();
        while let Some(n) = parts.next() {
            let write = match n {
                Reply::Int(n) => usize::try_from(n - 1).ok().and_then(|n| named.get(n)),
                _ => None,
            };
            let (key, _) = write.and_then(|write| write.expectation()).ok_or_else(nonsense)?;
            let there = parts.next().ok_or_else(nonsense)?.text_or_nil()?;
            refusal.push(Mismatch { key: key.clone(), there });
        }
        if refusal.is_empty() { Err(nonsense()) } else { Ok(Commit::Refused(refusal)) }
    }

    /// The reply to [`Command::set_if_absent`].
    pub(super) fn set_if_absent(self, batch: &Batch) -> Result<Commit, ServerError> {
        match (self.text_or_nil()?, batch.expectations().next()) {
            (Some(there), Some((key, _))) => {
                Ok(Commit::Refused(vec![Mismatch { key: key.clone(), there: Some(there) }]))
            }
            _ => Ok(Commit::Applied(Vec::new())),
        }
    }

    pub(super) fn text_or_nil(self) -> Result<Option<String>, Error> {
        match self {
            Reply::Nil => Ok(None),
            Reply::Text(text) => Ok(Some(text)),
            Reply::Error(error) => Err(error.into()),
            Reply::Int(_) | Reply::List(_) => Err(Error::unknown("a reply that is no text")),
        }
    }

    /// The reply to XRANGE: `[[position, [field, value, …]], …]`. The record is the field `data`.
    pub(super) fn records(self) -> Result<Vec<Record>, Error> {
        let nonsense = || Error::unknown("the log's reply makes no sense");
        let Reply::List(entries) = self else {
            return Err(nonsense());
        };
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            let Reply::List(entry) = entry else {
                return Err(nonsense());
            };
            let Ok([Reply::Text(position), Reply::List(fields)]) = <[Reply; 2]>::try_from(entry) else {
                return Err(nonsense());
            };
            let mut fields = fields.into_iter();
            let text = loop {
                match (fields.next(), fields.next()) {
                    (Some(Reply::Text(name)), Some(Reply::Text(text))) if name == "data" => break text,
                    (Some(_), Some(_)) => {}
                    _ => return Err(Error::decode("a record of the log has no field `data`")),
                }
            };
            records.push(Record { position: position.parse::<Position>().map_err(|_| nonsense())?, text });
        }
        Ok(records)
    }
}
