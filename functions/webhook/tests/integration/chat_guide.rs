//! The examples of `docs/chat.md` and of the front page are true: each is a dialogue with the whole function.

use crate::support;

use onetap_ledger::Moment;
use serde_json::Value;
use support::*;

const GUIDE: &str = include_str!("../../../../docs/chat.md");
/// The sign for a line break within a message.
const LINE_BREAK: char = '↵';

/// A row of a table: what a new user says, one message after the other, and what the last reply contains.
struct Row<'a> {
    line: usize,
    is_chinese: bool,
    is_group: bool,
    messages: Vec<&'a str>,
    /// Empty if the bot says nothing.
    replies: Vec<&'a str>,
}

/// The rows of every table of two columns whose first is headed `say` or `說`. Other tables have no dialogues.
fn rows(guide: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    // The heading of the current table's first column.
    let mut heading = None;
    for (n, line) in guide.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').collect();
        let [_, first, second, _] = cells[..] else {
            heading = None;
            continue;
        };
        let heading = *heading.get_or_insert(first);
        let is_chinese = heading.contains('說');
        let is_dialogue = is_chinese || heading.contains("say");
        if is_dialogue && first != heading && !first.starts_with("---") {
            let is_group = heading.contains("group") || heading.contains("群組");
            let (messages, replies) = (quoted(first), quoted(second));
            assert!(!messages.is_empty(), "line {} has no message", n + 1);
            rows.push(Row { line: n + 1, is_chinese, is_group, messages, replies });
        }
    }
    rows
}

/// The texts in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn event(user: &str, words: &str, is_group: bool) -> Value {
    let words = words.replace(LINE_BREAK, "\n");
    match words.strip_prefix('@') {
        Some(words) if is_group => mentioning(user, words.split_once(' ').map_or("", |(_, words)| words)),
        _ if is_group => in_group(text(user, &words)),
        _ => text(user, &words),
    }
}

/// What is wrong with a row; nothing if it is true.
async fn fault(bot: &Bot, row: &Row<'_>) -> Option<String> {
    // A dialogue has one time, so that no midnight comes between its messages.
    let (user, now) = (user(), Moment::now());
    let mut said = String::new();
    for message in &row.messages {
        assert_eq!(bot.deliver(&[at(now, event(&user, message, row.is_group))]).await, 200);
        said = bot.said().join("\n");
    }
    let is_silent = row.replies.is_empty();
    let is_true = is_silent == said.is_empty() && row.replies.iter().all(|reply| said.contains(reply));
    (!is_true).then(|| {
        let Row { line, messages, replies, .. } = row;
        format!("line {line}: {messages:?} is answered {said:?}, not {replies:?}")
    })
}

#[tokio::test]
async fn every_example_of_the_chat_guide_is_true() {
    let rows = rows(GUIDE);
    let said_in = |is_chinese: bool| {
        let half = rows.iter().filter(|row| row.is_chinese == is_chinese);
        half.map(|row| (row.is_group, &row.messages)).collect::<Vec<_>>()
    };
    assert_eq!(said_in(false), said_in(true), "the English and the Chinese half have the same examples");
    assert!(!rows.is_empty());
    let bot = Bot::new(memory());
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(fault(&bot, row).await);
    }
    assert!(faults.is_empty(), "{} of {} rows are wrong:\n{}", faults.len(), rows.len(), faults.join("\n"));
}

/// The front page's dialogue: a line after `> ` is said, and the lines after it are the whole answer.
#[tokio::test]
async fn the_front_pages_dialogue_is_what_the_bot_answers() {
    let page = include_str!("../../../../README.md");
    let dialogue = page.split("```text\n> ").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let (bot, user, now) = (Bot::new(memory()), user(), Moment::now());
    for turn in dialogue.split("\n> ") {
        let (said, answer) = turn.split_once('\n').unwrap();
        assert_eq!(bot.deliver(&[at(now, text(&user, said))]).await, 200);
        assert_eq!(bot.said(), [answer], "{said}");
    }
}
