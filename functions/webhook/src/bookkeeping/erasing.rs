//! The erasure of everything that is kept for a user: asked for, confirmed, hidden in one commit, then removed.

use onetap_bot::{Answer, Change, Context};
use onetap_ledger::{Book, Remaining, erase as erase_book, remove_hidden};
use onetap_line::{Action, Message, Messages};
use onetap_store::{Batch, Edit, Error, Expect, Key, Values, edit};

use crate::replies::{self, text};

/// The removal of everything that is kept for a user.
#[derive(Clone, Debug)]
pub(super) struct Erasure {
    pub(super) book: Book,
    pub(super) profile: Key,
}

impl Erasure {
    fn edit(&self) -> Edit<'static> {
        let keys = self.book.keys().into_iter().chain([self.profile.clone()]);
        Edit::of_all(keys).idempotent()
    }

    /// The writes over what is there, and what remains after them.
    fn step(&self, there: &Values) -> Result<(Batch, Remaining), Error> {
        let (writes, remaining) = erase_book(&self.book, there)?;
        Ok(match there.get(&self.profile) {
            Some(text) => (writes.delete(&self.profile, text), remaining),
            None => (writes.check(&self.profile, Expect::Absent), remaining),
        })
    }
}

/// Hides everything from all readers in the commit of the event's marker.
pub(super) async fn erase(context: &Context<'_>, erasure: Erasure) -> Answer {
    // The months that are more than one commit takes come first, so that one commit can hide the rest together with its marker.
    let surplus = |there: &_| match erasure.step(there)? {
        (writes, Remaining::Visible) => Ok::<_, Error>((writes, true)),
        (_, Remaining::Hidden | Remaining::Nothing) => Ok((Batch::new(), false)),
    };
    loop {
        match context.apply(erasure.edit(), surplus).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(edit::Error::Unwritten(error)) if error.maybe_applied() => return Answer::again(),
            Err(_) => return Answer::say(replies::unavailable()),
        }
    }
    let edit = erasure.edit();
    Change::new(edit, move |there| Ok((erasure.step(there)?.0, Some(erased())))).into()
}

/// Removes the hidden records from the store, and says how far that came. A redelivery, or the next erasure, goes on.
pub(super) async fn remove_hidden_records(context: &Context<'_>, book: &Book) -> Messages {
    loop {
        let edit = Edit::of(book.months()).idempotent();
        match context.apply(edit, |there| remove_hidden(book, there)).await {
            // In a month in which an entry was made since, the store removes the rest by itself.
            Ok(Remaining::Nothing | Remaining::Visible) => return erased(),
            Ok(Remaining::Hidden) => {}
            Err(error) => {
                tracing::warn!(%error, "records of an erased ledger are left in the store");
                return unfinished();
            }
        }
    }
}

/// Whether the erasure is meant, with the data of the button that confirms it.
pub(super) fn confirm(data: &str) -> Messages {
    Message::text(
        "確定要刪除您的所有資料嗎？記帳紀錄、地點與設定都會刪除，而且無法復原。\n\
         確定的話，請在 5 分鐘內按「確定刪除」；不按就什麼都不會變。",
    )
    .quick_reply(Action::postback("確定刪除", data))
    .into()
}

/// The tapped button does not confirm an erasure.
pub(super) fn not_confirmed() -> Messages {
    text(
        "這個按鈕已經過期，或不是您的按鈕，所以沒有刪除任何資料。\n\
         如果要刪除您的資料，請再輸入一次「刪除我的資料」。",
    )
}

/// After everything was erased. Answers that are kept for repeated requests are not found by the user's id; they end by
/// themselves.
pub(super) fn erased() -> Messages {
    text("已刪除您的所有資料。\n為避免重複處理而暫存的回覆，會在一天內自動刪除。")
}

/// After everything was hidden, and not yet all of it removed from the store.
fn unfinished() -> Messages {
    text("您的資料已不再顯示，但資料量大，尚未全部清除。請稍後再傳一次「刪除我的資料」以完成清除。")
}
