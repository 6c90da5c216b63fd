//! The skill of the ledger.

pub mod confirmation;
mod erasing;
mod recall;
mod step;

use std::fmt;

use onetap_bot::{Answer, Context, Incoming, Key};
use onetap_idem::digest;
use onetap_ledger::chat::{self, Habits, Recall, Sentence};
use onetap_ledger::{Book, Moment};
use onetap_line::Messages;

use crate::ask::Button;
use crate::profile::PROFILE;
use crate::{Assistant, replies};
use confirmation::{button_data, confirms};
use erasing::Erasure;
use step::{Bookkeeping, without_store};

/// The longest text that may answer a question of the bot, in characters.
const MAX_ANSWER_CHARS: usize = 40;

/// What an event asks of this skill.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A change of the ledger or of the user's habits, or what may be missing in an entry that was said before. The answer if it
    /// is none of these.
    Words(Words, Messages),
    /// Something of the ledger is to be read.
    Recall(Recall),
    /// The ledger is not read aloud in a group.
    NotInAGroup,
    /// Whether an erasure is meant, with the data of the button that confirms it.
    ConfirmErasure(String),
    /// Everything that is kept for the user is to go: it was asked for, and confirmed.
    Erase,
    /// The tapped button does not confirm an erasure: it is too old, or another user's.
    ErasureNotConfirmed,
    /// LINE does not say whose data it is about.
    UnknownUser,
    /// A text that is too long to answer a question, and is nothing else.
    Nothing(Messages),
}

/// What somebody said, and when. `Debug` does not show it.
#[derive(Clone)]
pub struct Words {
    /// The text.
    pub text: String,
    /// What it means to the ledger of a user without habits.
    pub means: Sentence,
    /// When it was said.
    pub at: Moment,
    /// In which group or room: a hash of its id. `None` in a chat with the bot alone.
    pub chat: Option<String>,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({} bytes)", self.text.len())
    }
}

impl Ask {
    /// Whether a tap on its button takes the processing lock.
    pub(crate) fn is_locked_button(&self) -> bool {
        match self {
            Ask::Words(..)
            | Ask::Recall(_)
            | Ask::NotInAGroup
            | Ask::ConfirmErasure(_)
            | Ask::Erase
            | Ask::ErasureNotConfirmed
            | Ask::UnknownUser
            | Ask::Nothing(_) => false,
        }
    }

    /// A button of this skill.
    pub(crate) fn button(action: &str, button: &Button<'_>, user: Option<&str>, at: Moment) -> Option<Ask> {
        let field = |name| button.field(name).unwrap_or_default();
        match (action, user) {
            ("erase", Some(user)) if confirms(user, &field("asked"), &field("user"), at) => Some(Ask::Erase),
            ("erase", _) => Some(Ask::ErasureNotConfirmed),
            _ => None,
        }
    }

    /// A text that certainly concerns the ledger: an erasure, an entry, a correction, a question.
    pub(crate) fn text(text: &str, incoming: &Incoming<'_>, at: Moment) -> Option<Ask> {
        if asks_to_erase(text) {
            let ask = |user| Ask::ConfirmErasure(button_data(user, at));
            return Some(incoming.user_id().map_or(Ask::UnknownUser, ask));
        }
        match chat::parse(text, at, &Habits::default()) {
            // A ledger is not read aloud in a group.
            Sentence::Recall(_) if !incoming.is_one_to_one() => Some(Ask::NotInAGroup),
            Sentence::Recall(recall) => Some(Ask::Recall(recall)),
            Sentence::Other => None,
            means => Some(Ask::Words(Words::new(text, means, incoming, at), replies::help())),
        }
    }

    /// A text that nothing else understands: if it is short, it may name what is missing in an entry. It is answered with `otherwise`
    /// if it does not.
    pub(crate) fn perhaps(text: &str, incoming: &Incoming<'_>, at: Moment, otherwise: Messages) -> Ask {
        match text.chars().count() <= MAX_ANSWER_CHARS {
            true => Ask::Words(Words::new(text, Sentence::Other, incoming, at), otherwise),
            false => Ask::Nothing(replies::not_understood()),
        }
    }
}

impl Words {
    fn new(text: &str, means: Sentence, incoming: &Incoming<'_>, at: Moment) -> Words {
        let source = &incoming.event.source;
        let id = source.chat_id.as_deref().unwrap_or_default();
        let is_alone = incoming.is_one_to_one();
        let chat = (!is_alone).then(|| digest(&[source.chat.label().as_bytes(), id.as_bytes()]));
        Words { text: text.to_owned(), means, at, chat }
    }
}

/// Whether the text asks for the erasure of everything.
fn asks_to_erase(text: &str) -> bool {
    let text = text.trim_end_matches(['。', '！', '!', '吧']);
    [
        "刪除我的資料",
        "刪除我的所有資料",
        "刪除我所有的資料",
        "刪除我的全部資料",
        "刪除所有資料",
        "清除所有資料",
        "清除我的資料",
    ]
    .contains(&text)
}

/// The user's ledger, and the key of the profile; `None` if LINE does not name the user.
struct Kept {
    book: Book,
    profile: Key,
}

impl Assistant {
    fn kept(&self, incoming: &Incoming<'_>) -> Option<Kept> {
        let book = Book::new(incoming.user_id()?, self.ledger)?;
        Some(Kept { book, profile: PROFILE.key(incoming)? })
    }

    /// The keys that the answer reads.
    pub(crate) fn reads_for_books(&self, incoming: &Incoming<'_>, ask: &Ask) -> Vec<Key> {
        match (ask, self.kept(incoming)) {
            (Ask::Words(words, _), Some(Kept { book, profile })) => {
                step::keys(&book, &profile, words, moment(incoming.now_ms).unwrap_or(words.at))
            }
            _ => Vec::new(),
        }
    }

    /// The answer of this skill.
    pub(crate) async fn answer_books(&self, context: &Context<'_>, ask: &Ask) -> Answer {
        let unavailable = || Answer::say(replies::unavailable());
        match (ask, self.kept(context.incoming())) {
            (Ask::Words(words, otherwise), kept) => self.change_of_books(context, words, otherwise, kept),
            (Ask::Recall(question), Some(kept)) => {
                match recall::recall(context, &kept.book, question).await {
                    Ok(messages) => Answer::say(messages),
                    Err(_) => unavailable(),
                }
            }
            (Ask::Erase, Some(kept)) => erasing::erase(context, kept.into()).await,
            (Ask::Recall(_) | Ask::Erase, None) => unavailable(),
            (Ask::NotInAGroup, _) => {
                Answer::say(replies::text("為了保護您的隱私，請在和我的一對一聊天裡查帳。"))
            }
            (Ask::ConfirmErasure(data), _) => Answer::say(erasing::confirm(data)),
            (Ask::ErasureNotConfirmed, _) => Answer::say(erasing::not_confirmed()),
            (Ask::UnknownUser, _) => {
                Answer::say(replies::text("LINE 沒有告訴我您是誰，請在和我的一對一聊天裡再說一次。"))
            }
            (Ask::Nothing(messages), _) => Answer::say(messages.clone()),
        }
    }

    fn change_of_books(
        &self,
        context: &Context<'_>,
        words: &Words,
        otherwise: &Messages,
        kept: Option<Kept>,
    ) -> Answer {
        let without_store = without_store(words, otherwise).unwrap_or_else(replies::unavailable);
        let (Some(Kept { book, profile }), Some(now)) = (kept, moment(context.incoming().now_ms)) else {
            return Answer::say(without_store);
        };
        let bookkeeping = Bookkeeping::new(book, profile, words.clone(), now, otherwise.clone());
        bookkeeping.knowing(context.known()).into_change().or_say(without_store).into()
    }

    /// After the commit of a change, before its answer is sent.
    pub(crate) async fn after_books(&self, context: &Context<'_>, ask: &Ask, messages: Messages) -> Messages {
        match (ask, self.kept(context.incoming())) {
            (Ask::Erase, Some(kept)) => erasing::remove_hidden_records(context, &kept.book).await,
            _ => messages,
        }
    }
}

impl From<Kept> for Erasure {
    fn from(Kept { book, profile }: Kept) -> Erasure {
        Erasure { book, profile }
    }
}

fn moment(ms: i64) -> Option<Moment> {
    Moment::from_unix(ms.div_euclid(1000))
}
