//! Reading the ledger back in the chat.

use futures_util::future::try_join_all;
use onetap_bot::Context;
use onetap_ledger::chat::Recall;
use onetap_ledger::{Book, Month, Months, Statement, texts};
use onetap_line::Messages;
use onetap_store::{Error, Observed};

use crate::replies;

/// How many entries `最近紀錄` shows.
const RECENT_ENTRIES: usize = 5;

/// What the ledger says to the question.
pub(super) async fn recall(context: &Context<'_>, book: &Book, recall: &Recall) -> Result<Messages, Error> {
    Ok(replies::text(match recall {
        Recall::Month(month) => texts::summary(&statement(context, book, *month).await?, &month.to_string()),
        Recall::Recent => recent(context, book).await?,
        Recall::Days { first, last, name, of } => {
            // A week may begin in one month and end in the next; a year has twelve.
            let begin = Month::from(*first);
            let months = std::iter::successors(Some(Month::from(*last)), |month| month.previous());
            let months = months.take_while(|month| *month >= begin);
            let statements = try_join_all(months.map(|month| statement(context, book, month))).await?;
            let all = statements.into_iter().reduce(Statement::join);
            let days = all.map_or_else(|| Statement::fold(begin, []), |all| all.between(*first, *last));
            match of {
                Some(of) if of == "收入" => texts::summary(&days.matching(of), name),
                Some(of) => match days.matching(of) {
                    none if none.count() == 0 => format!("{name} 找不到「{of}」的紀錄"),
                    days => texts::summary(&days, &format!("{name} {of}")),
                },
                None => texts::summary(&days, name),
            }
        }
    }))
}

/// The entries with the latest dates: months are read from the latest on until there are enough.
async fn recent(context: &Context<'_>, book: &Book) -> Result<String, Error> {
    let months = Months::read(context.get(&[book.months().clone()]).await?.get(book.months()));
    let mut entries = Vec::new();
    for month in months.latest_first() {
        let statement = statement(context, book, month).await?;
        entries.extend(statement.latest(RECENT_ENTRIES - entries.len()).cloned());
        if entries.len() == RECENT_ENTRIES {
            break;
        }
    }
    Ok(texts::recent(&entries))
}

async fn statement(context: &Context<'_>, book: &Book, month: Month) -> Result<Statement, Error> {
    let records = context.records(&book.log(month)?).await?;
    let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
    Observed::count_unreadable(statement.unreadable());
    Ok(statement)
}
