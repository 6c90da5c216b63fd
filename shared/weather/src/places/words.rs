//! The words around a place's name, and the spelling in which texts are compared.

/// Ask for the weather.
const WEATHER: &str = "
    天氣 氣象 預報 氣溫 溫度 幾度 多少度 下雨 降雨 有雨 雨天 下雪 雷雨 帶傘 帶雨傘 帶把傘 撐傘 冷嗎 冷不冷
    會不會冷 會不會很冷 熱嗎 熱不熱 會不會熱 會不會很熱 出太陽 晴天 放晴 天晴
";

/// Stand around a name and say nothing about the place: when, where the user is, that it is a question. None of them makes
/// a statement, as 了 and 喔 do: in a group 永和下雨了 asks for nothing.
const FILLERS: &str = "
    今天 今日 今早 今晚 明天 明日 明早 明晚 後天 大後天 現在 目前 正在 早上 上午 中午 下午 傍晚 晚上 凌晨 半夜
    晚點 等等 等下 等一下 待會 待會兒 這幾天 最近 未來 週末 周末 這週末 這周末 這週 這周 本週 本周 下週 下周
    一週 一周 週一 週二 週三 週四 週五 週六 週日 周六 周日 星期一 星期二 星期三 星期四 星期五 星期六 星期日
    星期天 禮拜六 禮拜天
    我家 家裡 這裡 這邊 外面 在
    請 請問 請問一下 想問 想知道 我想知道 告訴我 請告訴我 可以告訴我 查 查詢 查一下 幫我查 我要查 我想查 看
    看一下 幫我看 那 會 會不會 是否 有 有沒有 要 要不要 需要 需不需要 很 的 的話 呢 嗎 ㄇ 啊 如何 怎樣 怎麼樣
    好嗎 好不好
";

/// Follow a weather word.
const AFTER_WEATHER: &str = "機率 多少 狀況 情況 資訊 概況";

fn words() -> impl Iterator<Item = &'static str> {
    [WEATHER, FILLERS, AFTER_WEATHER].into_iter().flat_map(str::split_whitespace)
}

/// Whether a weather word is in `text`.
pub(super) fn ask_weather(text: &str) -> bool {
    WEATHER.split_whitespace().any(|word| text.contains(word))
}

/// Where a name may start: 0, and behind each of the words in front.
pub(super) fn starts(text: &str) -> Vec<usize> {
    let rests = without_words(text, |text, word| text.strip_prefix(word));
    rests.into_iter().map(|rest| text.len() - rest.len()).collect()
}

/// Where a name may end: at the end of `text`, and before each of the words behind it.
pub(super) fn ends(text: &str) -> Vec<usize> {
    let rests = without_words(text, |text, word| text.strip_suffix(word));
    rests.into_iter().map(str::len).collect()
}

/// What remains of `text` when none, one or more words are stripped from one side.
fn without_words<'a>(text: &'a str, strip: fn(&'a str, &str) -> Option<&'a str>) -> Vec<&'a str> {
    let mut rests = vec![text];
    let mut next = 0;
    while let Some(&rest) = rests.get(next) {
        for shorter in words().filter_map(|word| strip(rest, word)) {
            if rests.iter().all(|rest| rest.len() != shorter.len()) {
                rests.push(shorter);
            }
        }
        next += 1;
    }
    rests
}

/// The letters and digits of `text`, half-width, in lower case, with 臺 for 台: no spaces, no punctuation, no emoji.
/// At most `limit` characters.
pub(super) fn normalised(text: &str, limit: usize) -> String {
    let half_width = |c| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '台' => '臺',
        c => c,
    };
    // Some of the emoji count as letters: 🅰.
    let emoji = |c: &char| ('\u{1f000}'..'\u{20000}').contains(c);
    text.chars()
        .map(half_width)
        .filter(|c| c.is_alphanumeric() && !emoji(c))
        .map(|c| c.to_ascii_lowercase())
        .take(limit)
        .collect()
}

/// One spelling of the characters that are often written in another way: 恒春, 苑裏, 南莊.
pub(super) fn spelling(name: &str) -> String {
    let usual = |c| match c {
        '台' => '臺',
        '恒' => '恆',
        '峯' => '峰',
        '塩' => '鹽',
        '庄' => '莊',
        '后' => '後',
        '裡' | '裏' => '里',
        '脚' => '腳',
        '万' => '萬',
        '双' => '雙',
        '湾' => '灣',
        c => c,
    };
    name.chars().map(usual).collect()
}
