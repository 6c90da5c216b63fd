//! The table of the demo: what happened, how often, its effects, and whether those are right.

use crate::client::CallError;

/// The name and the number of an effect.
pub(super) type Count = (&'static str, usize);

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    what: String,
    came: usize,
    did: String,
    right: bool,
}

impl Row {
    /// `what` came `came` times and had the effects `did`. It is right if those equal `should`.
    pub(super) fn counted(what: impl Into<String>, came: usize, did: &[Count], should: &[Count]) -> Row {
        let right = did == should;
        let said = if right { list(did) } else { format!("{} (should be {})", list(did), list(should)) };
        Row { what: what.into(), came, did: said, right }
    }

    /// `what` ended with an error.
    pub(super) fn failed(what: impl Into<String>, problem: &CallError) -> Row {
        Row { what: what.into(), came: 0, did: format!("broke off: {problem}"), right: false }
    }
}

fn list(counts: &[Count]) -> String {
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    counts.join(", ")
}

/// Whether every row is right. An empty table shows nothing, so it is not.
pub(super) fn all_right(rows: &[Row]) -> bool {
    !rows.is_empty() && rows.iter().all(|row| row.right)
}

/// The rows as a table.
pub(super) fn render(rows: &[Row]) -> String {
    let head = ["what happened", "came", "what it did", "right?"].map(str::to_owned);
    let lines: Vec<[String; 4]> = std::iter::once(head)
        .chain(rows.iter().map(|row| {
            let right = if row.right { "yes" } else { "NO" };
            [row.what.clone(), format!("{}x", row.came), row.did.clone(), right.to_owned()]
        }))
        .collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let row = |line: &[String; 4]| {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut table: Vec<String> = lines.iter().map(row).collect();
    table.insert(1, widths.map(|width| "-".repeat(width)).join("  "));
    table.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Row {
        Row::counted("two taps", 2, &[("forecast", 1), ("busy", 1)], &[("forecast", 1), ("busy", 1)])
    }

    #[test]
    fn what_did_what_it_should_is_right() {
        assert!(all_right(&[right(), right()]));
    }

    #[test]
    fn one_effect_too_many_or_too_few_is_wrong() {
        for did in [2, 0] {
            let wrong = Row::counted("three copies", 3, &[("effect", did)], &[("effect", 1)]);
            assert!(!all_right(&[right(), wrong.clone(), right()]));
            assert!(render(&[wrong]).contains(&format!("{did} effect (should be 1 effect)  NO")));
        }
    }

    #[test]
    fn what_broke_off_is_wrong_and_so_is_nothing_at_all() {
        assert!(!all_right(&[right(), Row::failed("a job", &CallError("silence".to_owned()))]));
        assert!(!all_right(&[]));
    }

    #[test]
    fn columns_stand_under_each_other() {
        let table = render(&[right()]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "what happened  came  what it did         right?");
        assert_eq!(lines[2], "two taps       2x    1 forecast, 1 busy  yes");
    }
}
