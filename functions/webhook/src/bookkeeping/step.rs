//! What a text means to a user's ledger: a pure step from what is kept to what is written and answered.

use onetap_bot::Change as BotChange;
use onetap_bot::State;
use onetap_ledger::chat::{self, Answer, Habits, Pending, PendingByChat, Problem, Sentence, Target};
use onetap_ledger::{Attempt, Book, Change, ChangeError, Entry, Moment, texts};
use onetap_line::{Action, Message, Messages};
use onetap_store::{Batch, Edit, Error, Expect, Key, Ttl, Values};

use super::Words;
use crate::profile::{PROFILE, Profile};
use crate::replies;

/// What a user has half said. What cannot be read is replaced.
const HALF_SAID: State<PendingByChat> =
    State::new("pending", Ttl::Of(PendingByChat::TTL)).per_user().lenient();

/// The writes of a step, and the answer if they are applied.
type Made = Result<(Batch, Messages), Error>;

/// After a half-said entry was dropped.
const DROPPED: &str = "好的，這筆先不記。";
/// In a group, which is not shown what the entry was.
const DELETED_IN_GROUP: &str = "已刪除最後記的那一筆";
const NOT_THIS_ONE_IN_GROUP: &str = "這不是最後記的那一筆，所以沒有變更。只能改或刪最後記的那一筆。";
/// After an edit that lacks its rate was dropped.
const NOT_EDITED: &str = "好的，沒有修改。";
/// Without an entry that could be dropped.
const NOTHING_TO_DROP: &str = "目前沒有等待補充的記帳。要刪除剛記的那一筆，請說「刪除上一筆」。";
/// To a correction while the entry that was said last is not recorded.
const NOT_RECORDED_YET: &str = "剛才說的那筆還沒記下來。請先補上缺少的部分，或說「取消」再重新輸入。";

/// The keys that the step is likely to need. What a change of the ledger is not given it takes for absent, and is then refused.
pub(super) fn keys(book: &Book, profile: &Key, words: &Words, now: Moment) -> Vec<Key> {
    let (pending, profile) = (book.pending().clone(), profile.clone());
    let of = |change: Change| attempt(words, now, change, Target::default()).keys(book);
    // What the text means may depend on the habits, and on what was said before.
    match &words.means {
        Sentence::Edit(patch, _) => [of(Change::Edit(patch.clone())), vec![pending, profile]].concat(),
        Sentence::Delete(_) => [of(Change::Delete), vec![pending, profile]].concat(),
        Sentence::Note(note) => [of(Change::Note(note.clone())), vec![profile]].concat(),
        Sentence::SetPayment(_) => vec![profile],
        Sentence::NoteProblem(_) | Sentence::EditProblem(_) => vec![pending, profile],
        // With a default it may be a whole entry, or it completes one.
        _ => vec![book.last_transaction().clone(), book.months().clone(), pending, profile],
    }
}

fn attempt(words: &Words, now: Moment, change: Change, this: Target) -> Attempt {
    Attempt::new(change, None).meant_for(this).in_chat(words.chat.clone()).at(now)
}

/// A text, and where what it means is kept.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    book: Book,
    profile: Key,
    words: Words,
    /// The function's time. The text was written at the time of its event.
    now: Moment,
    /// The answer to a text that means nothing to the ledger.
    otherwise: Messages,
    /// What was read before.
    known: Values,
    /// The change that the text makes. It remembers from one try to the next which entry it met first.
    attempt: Option<Attempt>,
}

impl Bookkeeping {
    pub(super) fn new(
        book: Book,
        profile: Key,
        words: Words,
        now: Moment,
        otherwise: Messages,
    ) -> Bookkeeping {
        let known = Values::default();
        Bookkeeping { book, profile, words, now, otherwise, known, attempt: None }
    }

    /// The same, with what was read before.
    pub(super) fn knowing(self, known: Values) -> Bookkeeping {
        Bookkeeping { known, ..self }
    }

    /// As a change of a bot.
    pub(super) fn into_change(mut self) -> BotChange {
        BotChange::new(self.edit(), move |there| {
            let (writes, answer) = self.step(there)?;
            Ok((writes, Some(answer)))
        })
    }

    fn edit(&self) -> Edit<'static> {
        let edit = Edit::of_all(keys(&self.book, &self.profile, &self.words, self.now));
        // A note gets a new id on every retry, so it is not idempotent. The other changes are.
        match self.words.means {
            Sentence::SetPayment(_) => edit.idempotent(),
            // It may complete what was said before, which is an entry.
            Sentence::Edit(..) | Sentence::Delete(_) if self.has_no_pending() => edit.idempotent(),
            _ => edit,
        }
    }

    /// Whether it is known that nothing is half said.
    fn has_no_pending(&self) -> bool {
        self.known.knows(self.book.pending()) && self.known.get(self.book.pending()).is_none()
    }

    /// The writes over what is there, and the answer if they are applied.
    fn step(&mut self, there: &Values) -> Made {
        let profile = PROFILE.read(there.get(&self.profile)).unwrap_or_default();
        // A group is not shown how its members pay and what they call things.
        let general = Habits::default();
        let habits = if self.words.chat.is_some() { &general } else { profile.habits() };
        let sentence = chat::parse(&self.words.text, self.words.at, habits);
        let (key, chat, now) = (self.book.pending().clone(), self.words.chat.clone(), self.now);
        let half_said = HALF_SAID.read(there.get(&key))?;
        let pending = half_said.get(chat.as_deref(), habits, now);
        let replaced = pending.as_ref().map(|pending| pending.text().to_owned());
        if let Some(pending) = pending {
            let drop = |batch: Batch| {
                let mut others = half_said.clone();
                others.remove(chat.as_deref(), now);
                HALF_SAID.write(batch, &key, there, &others)
            };
            let is_last = self.last_written(there).is_none_or(|last| pending.at() >= last);
            match pending.answer(&self.words.text, habits) {
                Answer::Complete(note) => {
                    return self.change(Change::Note(note), Target::default(), there, &profile, drop);
                }
                Answer::Edit(patch, this) => {
                    return self.change(Change::Edit(patch), this, there, &profile, drop);
                }
                Answer::Asks(pending, problem) => return self.ask(&pending, problem, there, habits),
                // `刪除`, after another entry was recorded, deletes that.
                Answer::Cancelled if !is_last && matches!(sentence, Sentence::Delete(_)) => {}
                Answer::Cancelled if pending.is_edit() => {
                    return Ok((drop(Batch::new())?, replies::text(NOT_EDITED)));
                }
                Answer::Cancelled => return Ok((drop(Batch::new())?, replies::text(DROPPED))),
                Answer::Other if is_last && !pending.is_edit() => {
                    // What was said last is not recorded yet: a correction of the last transaction would hit another one.
                    match &sentence {
                        Sentence::Delete(this) if this.is_any() => {
                            return Ok((drop(Batch::new())?, replies::text(DROPPED)));
                        }
                        Sentence::Edit(_, this) if this.is_any() => {
                            return Ok((Batch::new(), replies::text(NOT_RECORDED_YET)));
                        }
                        Sentence::Other => {
                            let (said, missing) = (pending.text(), pending.missing());
                            let problem = format!(
                                "不好意思，我沒聽懂。「{said}」還缺少{missing}，請告訴我；不記請說「取消」。"
                            );
                            return Ok(self.asked(Batch::new(), &pending, problem, habits));
                        }
                        _ => {}
                    }
                }
                Answer::Other => {}
            }
        }
        let nothing = |text: String| Ok((Batch::new(), replies::text(text)));
        let mut change = |change, this| self.change(change, this, there, &profile, Ok);
        match sentence {
            Sentence::Note(note) => change(Change::Note(note), Target::default()),
            Sentence::Edit(patch, this) => change(Change::Edit(patch), this),
            Sentence::Delete(this) => change(Change::Delete, this),
            Sentence::HalfSaid(pending, Problem(question)) => {
                let question = match replaced {
                    Some(text) => format!("（剛才的「{text}」先不記。）\n{question}"),
                    None => question,
                };
                self.ask(&pending, Problem(question), there, habits)
            }
            Sentence::EditProblem(Problem(text)) | Sentence::NoteProblem(Problem(text)) => nothing(text),
            Sentence::SetPayment(payment) => {
                let mut habits = profile.habits().clone();
                habits.set_payment(payment.as_deref());
                let answer = match payment {
                    Some(payment) => format!("好的，之後沒有說付款方式就記「{payment}」。"),
                    None => "好的，之後沒有說付款方式時會再問您。".to_owned(),
                };
                Ok((self.remember(Batch::new(), &profile, habits, there)?, replies::text(answer)))
            }
            _ if chat::is_cancel(&self.words.text) => nothing(NOTHING_TO_DROP.to_owned()),
            _ => Ok((Batch::new(), self.otherwise.clone())),
        }
    }

    /// When the last transaction was written, by its id.
    fn last_written(&self, there: &Values) -> Option<Moment> {
        let last = there.get(self.book.last_transaction()).and_then(Entry::read)?;
        Moment::parse_id(last.id())
    }

    /// A change of the ledger, and what is remembered of it. If it is made, `and` adds to its writes.
    fn change(
        &mut self,
        change: Change,
        this: Target,
        there: &Values,
        profile: &Profile,
        and: impl FnOnce(Batch) -> Result<Batch, Error>,
    ) -> Made {
        // Each try reads the text again: what it means may depend on what is there.
        let is_same = |attempt: &Attempt| match (attempt.change(), &change) {
            (Change::Edit(before), Change::Edit(now)) => before == now,
            (before, now) => matches!((before, now), (Change::Delete, Change::Delete)),
        };
        let mut attempt = match self.attempt.take().filter(is_same) {
            Some(attempt) => attempt,
            None => self::attempt(&self.words, self.now, change, this),
        };
        let made = attempt.write(&self.book, there);
        if let (Err(failure @ ChangeError::Invalid(invalid)), Change::Edit(patch)) = (&made, attempt.change())
            && patch.currency_without_rate(invalid).is_some()
        {
            let pending = Pending::rate_of_edit(&self.words.text, self.words.at);
            let problem = Problem(texts::chat_failure(failure, attempt.change(), self.book.life()));
            return self.ask(&pending, problem, there, profile.habits());
        }
        let answer = match (&made, attempt.change()) {
            (Ok((_, step)), Change::Edit(patch)) if attempt.is_in_group() => {
                texts::edited_in_group(patch, step)
            }
            (Ok((_, step)), Change::Edit(patch)) => texts::edited(patch, step),
            (Ok(_), Change::Delete) if attempt.is_in_group() => DELETED_IN_GROUP.to_owned(),
            (Ok((_, step)), Change::Delete) => texts::deleted(step),
            (Ok((_, step)), Change::Note(note)) => texts::noted(note, step.entries()),
            (Ok(_), Change::Put(_)) => String::new(),
            // What was said elsewhere may have changed it since.
            (Err(ChangeError::NotThisOne(_)), _) if attempt.is_in_group() => NOT_THIS_ONE_IN_GROUP.to_owned(),
            (Err(failure), change) => texts::chat_failure(failure, change, self.book.life()),
        };
        let mut habits = profile.habits().clone();
        let writes = match (made, attempt.change()) {
            (Ok((writes, step)), change) => {
                match (change, step.entry()) {
                    (Change::Note(_), _) => habits.after_entries(step.entries()),
                    (Change::Edit(patch), Some(edited)) => habits.after_edit(patch, edited),
                    _ => {}
                }
                and(self.remember(writes, profile, habits, there)?)?
            }
            // What was taken for absent must be: otherwise the next try knows better.
            (Err(_), _) => {
                let unknown = attempt.keys(&self.book).into_iter().filter(|key| !there.knows(key));
                unknown.fold(Batch::new(), |batch, key| batch.check(&key, Expect::Absent))
            }
        };
        self.attempt = Some(attempt);
        Ok((writes, replies::text(answer)))
    }

    /// The same writes with these habits, if they are new.
    fn remember(
        &self,
        writes: Batch,
        profile: &Profile,
        habits: Habits,
        there: &Values,
    ) -> Result<Batch, Error> {
        if habits == *profile.habits() {
            return Ok(writes);
        }
        PROFILE.write(writes, &self.profile, there, &profile.clone().with_habits(habits))
    }

    /// Keeps a half-said entry, and asks for what is missing.
    fn ask(&self, pending: &Pending, problem: Problem, there: &Values, habits: &Habits) -> Made {
        let key = self.book.pending();
        let mut half_said = HALF_SAID.read(there.get(key))?;
        half_said.put(pending, self.words.chat.as_deref(), self.now);
        let writes = HALF_SAID.write(Batch::new(), key, there, &half_said)?;
        Ok(self.asked(writes, pending, problem.0, habits))
    }

    /// A question with its buttons.
    fn asked(
        &self,
        writes: Batch,
        pending: &Pending,
        question: String,
        habits: &Habits,
    ) -> (Batch, Messages) {
        // In a group the answer must be spoken to the bot.
        let is_group = self.words.chat.is_some();
        let say = |text: &str| if is_group { format!("記帳 {text}") } else { text.to_owned() };
        let hint = if is_group { "\n（請按按鈕，或在回答前面加上「記帳 」）" } else { "" };
        let button = |name: &str| Action::message(name, say(name));
        let payments = habits.offered().filter(|_| pending.misses_payment());
        let message = Message::text(format!("{question}{hint}"));
        let message = payments.fold(message, |message, name| message.quick_reply(button(name)));
        (writes, message.quick_reply(button("取消")).into())
    }
}

/// What a text is answered where the store is down: nothing is kept then.
pub(super) fn without_store(words: &Words, otherwise: &Messages) -> Option<Messages> {
    match &words.means {
        Sentence::HalfSaid(_, Problem(text))
        | Sentence::EditProblem(Problem(text))
        | Sentence::NoteProblem(Problem(text)) => Some(replies::text(text.as_str())),
        // A way to pay is the answer to a question that only the store knows.
        Sentence::Other if !chat::is_payment(&words.text) && !chat::is_cancel(&words.text) => {
            Some(otherwise.clone())
        }
        _ => None,
    }
}
