use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use sha1_smol::Sha1;

use super::request::Command;

/// Shadows `redis` for the rest of the script, with a `call` and a `pcall` that know no PUBLISH. It is one
/// line without a line break, so that errors still name the script's own lines.
const WITHOUT_PUBLISH: &str = concat!(
    "local redis = (function(real) ",
    "local denied = { err = 'ERR This Redis command is not allowed from script' } ",
    "local function publishes(name) return type(name) == 'string' and string.upper(name) == 'PUBLISH' end ",
    "return setmetatable({ ",
    "call = function(name, ...) if publishes(name) then error(denied) end return real.call(name, ...) end, ",
    "pcall = function(name, ...) if publishes(name) then return denied end return real.pcall(name, ...) end ",
    "}, { __index = real }) end)(redis) ",
);

/// The scripts that came through, by the digest their sender knows.
///
/// Redis gets a rewritten text and so knows another digest; whether it has the script is for Redis to say.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    sources: Mutex<HashMap<String, String>>,
    refuse_publish: AtomicBool,
    pass_on_key_locking: AtomicBool,
}

impl Scripts {
    pub(super) fn pass_on_key_locking(&self, on: bool) {
        self.pass_on_key_locking.store(on, Ordering::SeqCst);
    }

    pub(super) fn refuse_publish(&self, on: bool) {
        self.refuse_publish.store(on, Ordering::SeqCst);
    }

    /// Rewrites what the command says of scripts. Returns the digest to answer if it loads one.
    pub(super) fn translate(&self, name: &str, command: &mut Command) -> Option<String> {
        match (name, command.as_mut_slice()) {
            ("EVAL" | "EVAL_RO", [_, source, ..]) => {
                self.take_in(source);
                None
            }
            ("EVALSHA" | "EVALSHA_RO", [_, digest, ..]) => {
                self.look_up(digest);
                None
            }
            ("SCRIPT", [_, load, source]) if load.eq_ignore_ascii_case("LOAD") => Some(self.take_in(source)),
            ("SCRIPT", [_, exists, digests @ ..]) if exists.eq_ignore_ascii_case("EXISTS") => {
                digests.iter_mut().for_each(|digest| self.look_up(digest));
                None
            }
            _ => None,
        }
    }

    fn take_in(&self, source: &mut String) -> String {
        let digest = digest_of(source);
        let rewritten = self.rewrite(source);
        let original = std::mem::replace(source, rewritten);
        self.sources.lock().unwrap().insert(digest.clone(), original);
        digest
    }

    fn look_up(&self, digest: &mut String) {
        if let Some(source) = self.sources.lock().unwrap().get(&digest.to_lowercase()) {
            *digest = digest_of(&self.rewrite(source));
        }
    }

    /// Takes out a first line that stock Redis refuses, and puts in what is to be forbidden.
    fn rewrite(&self, source: &str) -> String {
        let forbid = if self.refuse_publish.load(Ordering::SeqCst) { WITHOUT_PUBLISH } else { "" };
        let strip = !self.pass_on_key_locking.load(Ordering::SeqCst);
        match source.split_once('\n') {
            // The line itself stays, empty: errors still name the right lines.
            Some((first, rest))
                if strip && first.starts_with("#!") && first.contains("allow-key-locking") =>
            {
                format!("\n{forbid}{rest}")
            }
            Some((first, rest)) if first.starts_with("#!") => format!("{first}\n{forbid}{rest}"),
            _ => format!("{forbid}{source}"),
        }
    }
}

fn digest_of(source: &str) -> String {
    Sha1::from(source).digest().to_string()
}
