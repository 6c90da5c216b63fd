//! CSV for spreadsheets: RFC 4180, in UTF-8 with a byte order mark.

/// Without it Excel reads the file in the local code page, not as UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A value of a row.
pub(crate) enum Cell<'a> {
    /// A user's words. What a spreadsheet would take for a formula gets an apostrophe before it.
    Text(&'a str),
    /// A number, as its digits. A negative one stays a number.
    Number(&'a str),
}

/// A table that grows row by row.
pub(crate) struct Csv(String);

impl Csv {
    pub(crate) fn new() -> Csv {
        Csv(BYTE_ORDER_MARK.to_string())
    }

    /// Adds a row.
    pub(crate) fn row<'a>(&mut self, cells: impl IntoIterator<Item = Cell<'a>>) {
        for (n, cell) in cells.into_iter().enumerate() {
            if n > 0 {
                self.0.push(',');
            }
            match cell {
                Cell::Number(digits) => self.0.push_str(digits),
                Cell::Text(text) => self.text(text),
            }
        }
        self.0.push_str("\r\n");
    }

    fn text(&mut self, text: &str) {
        let apostrophe = if is_formula(text) { "'" } else { "" };
        if text.contains([',', '"', '\r', '\n']) {
            self.0.extend(["\"", apostrophe, &text.replace('"', "\"\""), "\""]);
        } else {
            self.0.extend([apostrophe, text]);
        }
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Whether a spreadsheet may run the text of a cell. Blanks and invisible characters before the sign do not protect:
/// LibreOffice, for one, drops a NUL and then finds a formula.
fn is_formula(text: &str) -> bool {
    let is_sign = |c: char| matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠');
    let is_invisible =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{feff}');
    text.starts_with(['\t', '\r', '\n']) || text.trim_start_matches(is_invisible).starts_with(is_sign)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[&[&str]]) -> String {
        let mut csv = Csv::new();
        rows.iter().for_each(|row| csv.row(row.iter().map(|text| Cell::Text(text))));
        csv.into_string()
    }

    /// The rows of a CSV by the grammar of RFC 4180, character by character.
    fn parse(csv: &str) -> Vec<Vec<String>> {
        let mut rows = vec![vec![String::new()]];
        let mut quoted = false;
        let mut left = csv.strip_prefix(BYTE_ORDER_MARK).unwrap().chars().peekable();
        while let Some(c) = left.next() {
            let cell = rows.last_mut().unwrap().last_mut().unwrap();
            match c {
                '"' if quoted && left.next_if_eq(&'"').is_some() => cell.push('"'),
                '"' => quoted = !quoted,
                ',' if !quoted => rows.last_mut().unwrap().push(String::new()),
                '\r' if !quoted => {
                    assert_eq!(left.next(), Some('\n'));
                    rows.push(vec![String::new()]);
                }
                _ => cell.push(c),
            }
        }
        assert_eq!(rows.pop(), Some(vec![String::new()]), "every row ends with a line break");
        rows
    }

    #[test]
    fn a_row_is_a_line_with_commas_between() {
        assert_eq!(table(&[&["品項", "附註"], &["午餐", ""]]), "\u{feff}品項,附註\r\n午餐,\r\n");
        assert_eq!(
            table(&[&["a,b", "say \"hi\"", "1\r\n2"]]),
            "\u{feff}\"a,b\",\"say \"\"hi\"\"\",\"1\r\n2\"\r\n"
        );
        let mut csv = Csv::new();
        csv.row([Cell::Number("-1.50"), Cell::Text("-1.50")]);
        assert_eq!(csv.into_string(), "\u{feff}-1.50,'-1.50\r\n");
    }

    #[test]
    fn a_text_that_a_spreadsheet_would_run_begins_with_an_apostrophe() {
        for text in [
            "=1+1",
            "+886",
            "-",
            "@SUM(A1)",
            "＝1",
            "＋1",
            "－1",
            "＠a",
            "\t=1",
            "\r=1",
            "\n=1",
            "\tx",
            " =1",
            "\u{3000}=1",
            "\u{feff}=1",
            "\0=1",
            "\u{200b}=1",
        ] {
            assert_eq!(parse(&table(&[&[text]])), [[format!("'{text}")]], "{text:?}");
        }
        for text in ["", " ", "1=1", "a+b", "'=1", "午餐 = 120", "−1", "\"=1\"", "20251129-143000"] {
            assert_eq!(parse(&table(&[&[text]])), [[text]], "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cells_come_back_and_none_is_a_formula(
            rows in prop::collection::vec(prop::collection::vec("[=+@＝\",\r\n\t a-]{0,6}|.{0,6}", 3), 0..4),
        ) {
            let texts: Vec<Vec<&str>> = rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
            let texts: Vec<&[&str]> = texts.iter().map(Vec::as_slice).collect();
            let read = parse(&table(&texts));
            prop_assert_eq!(read.len(), rows.len());
            for (cell, text) in read.iter().flatten().zip(rows.iter().flatten()) {
                prop_assert!(!cell.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']));
                prop_assert!(!cell.starts_with(['\t', '\r', '\n']));
                prop_assert!(cell == text || cell.strip_prefix('\'') == Some(text.as_str()));
            }
        }
    }
}
