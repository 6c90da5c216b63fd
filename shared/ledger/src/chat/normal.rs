//! One spelling for what people type: full-width signs become half-width, emoji become blanks.

/// `text` with one spelling for each sign, without emoji and invisible characters, and without blanks at its ends.
pub(super) fn normalize(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for c in text.chars() {
        // A keycap emoji is a digit with this sign behind it.
        if c == '\u{20e3}' {
            normal.pop();
        }
        match c {
            '\u{ff01}'..='\u{ff5e}' => {
                normal.push(char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c));
            }
            '−' | '–' | '—' => normal.push('-'),
            '￥' => normal.push('¥'),
            '￡' => normal.push('£'),
            '〜' | '∼' => normal.push('~'),
            '×' => normal.push('*'),
            'ㄧ' => normal.push('一'),
            '\n' => normal.push('\n'),
            '「' | '」' | '『' | '』' | '“' | '”' | '《' | '》' | '【' | '】' | '‘' | '’' => {
                normal.push(' ')
            }
            c if is_invisible(c) => {}
            c if c.is_whitespace() || c.is_control() || is_picture(c) => normal.push(' '),
            c => normal.push(c),
        }
    }
    normal
        .split('\n')
        .map(without_number)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

fn has_digit(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit() || ['十', '百', '千', '萬'].contains(&c))
}

/// A line of a list without its number: `1. 早餐 50`, `2、午餐 120`, `一、早餐 50`.
fn without_number(line: &str) -> &str {
    let line = line.trim_start();
    let end = line.find(|c: char| !c.is_ascii_digit()).filter(|end| (1..=2).contains(end));
    let end = end.or_else(|| {
        line.starts_with(['一', '二', '三', '四', '五', '六', '七', '八', '九', '十']).then_some(3)
    });
    let Some((number, rest)) = end.map(|end| line.split_at(end)) else { return line };
    let signs: &[char] = if number.is_ascii() { &['.', ')', '、'] } else { &['、'] };
    // `50、早餐、現金` is no list.
    let is_amount = number.len() == 2 && rest.starts_with('、') && !has_digit(rest);
    match rest.strip_prefix(signs).filter(|_| !is_amount) {
        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => rest,
        _ => line,
    }
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{20e3}')
}

fn is_picture(c: char) -> bool {
    matches!(c,
        '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{2190}'..='\u{21ff}'
        | '\u{25a0}'..='\u{25ff}' | '\u{2022}' | '\u{203c}' | '\u{2049}' | '\u{3030}' | '\u{2300}'..='\u{23ff}' | '\u{100000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_spelling() {
        for (text, expected) in [
            ("　咖啡　４５　現金　", "咖啡 45 現金"),
            ("１，２００", "1,200"),
            ("午餐🍱120💰", "午餐 120"),
            ("ＬＩＮＥ　Ｐａｙ", "LINE Pay"),
            ("時間改為 18：30", "時間改為 18:30"),
            ("午\u{200b}餐－120", "午餐-120"),
            ("1️⃣ 午餐", "午餐"),
            ("A\r\nB", "A\nB"),
            ("Line  pay", "Line pay"),
            ("1. 早餐 50\n2）午餐 120\n三、茶 10\n1.5萬 房租", "早餐 50\n午餐 120\n茶 10\n1.5萬 房租"),
        ] {
            assert_eq!(normalize(text), expected, "{text}");
        }
    }
}
