use redis::Value;

use super::request::Command;
use super::scripts::Scripts;

/// What needs a connection of its own, which HTTP does not give, or would take the server from the others.
const UNAVAILABLE: &str = "AUTH BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CONFIG \
    DEBUG DISCARD EXEC HELLO MONITOR MULTI PSUBSCRIBE PUNSUBSCRIBE QUIT RESET SELECT SHUTDOWN SSUBSCRIBE \
    SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WAIT WATCH";

/// A command's result, or the text of its error.
pub(super) type Outcome = Result<Value, String>;

/// A command as Redis gets it, and how its reply differs on Upstash.
pub(super) struct Prepared {
    pub(super) command: Command,
    reply: Reply,
}

enum Reply {
    AsRedisSays,
    /// `SET … NX GET` answers null on Upstash also when the condition fails.
    Null,
    /// `SCRIPT LOAD` answers the digest of the text it was given, which is not quite the text that Redis got.
    Digest(String),
}

/// Makes an Upstash command a Redis command, or says why Upstash does not take it.
pub(super) fn prepare(mut command: Command, scripts: &Scripts) -> Result<Prepared, String> {
    let name = command[0].to_uppercase();
    let unavailable = UNAVAILABLE.split_whitespace().any(|one| one == name);
    let blocks = matches!(name.as_str(), "XREAD" | "XREADGROUP") && has_option(&command[1..], "BLOCK");
    if unavailable || blocks {
        return Err(format!("ERR Command is not available: '{name}'"));
    }
    let reply = match command.as_slice() {
        [_, _, _, options @ ..]
            if name == "SET" && has_option(options, "NX") && has_option(options, "GET") =>
        {
            Reply::Null
        }
        _ => match scripts.translate(&name, &mut command) {
            Some(digest) => Reply::Digest(digest),
            None => Reply::AsRedisSays,
        },
    };
    Ok(Prepared { command, reply })
}

fn has_option(arguments: &[String], option: &str) -> bool {
    arguments.iter().any(|argument| argument.eq_ignore_ascii_case(option))
}

impl Prepared {
    pub(super) fn outcome(&self, value: Value) -> Outcome {
        if let Some(text) = error_text(&value) {
            return Err(text);
        }
        Ok(match &self.reply {
            Reply::AsRedisSays => value,
            Reply::Null => Value::Nil,
            Reply::Digest(digest) => Value::BulkString(digest.clone().into_bytes()),
        })
    }
}

/// The error as it went over the wire, if the value is one.
pub(super) fn error_text(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else {
        return None;
    };
    Some(match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    })
}
