//! A kind word for texts that ask for nothing: 謝謝, 你好, 好的.

/// Words, and what they are answered. A text is one of them, perhaps with particles behind it.
const TALK: [(&[&str], &str); 5] = [
    (
        &[
            "謝謝",
            "感謝",
            "謝啦",
            "謝囉",
            "多謝",
            "感恩",
            "太感謝",
            "非常感謝",
            "thanks",
            "thank you",
            "thankyou",
            "thx",
            "3q",
        ],
        "不客氣！有需要再跟我說 😊",
    ),
    (
        &[
            "你好", "您好", "妳好", "哈囉", "嗨", "嘿", "安安", "早安", "午安", "晚安", "早", "hi", "hello",
            "hey", "在嗎",
        ],
        "您好！記帳或查天氣都可以跟我說，輸入「說明」看看可以怎麼用。",
    ),
    (
        &[
            "好",
            "好的",
            "好喔",
            "好哦",
            "好啊",
            "好啦",
            "ok",
            "okay",
            "okk",
            "嗯",
            "嗯嗯",
            "收到",
            "了解",
            "瞭解",
            "知道了",
            "明白",
            "沒問題",
            "對",
            "是",
            "是的",
        ],
        "好的！",
    ),
    (
        &["好棒", "棒", "太棒了", "厲害", "讚", "好厲害", "辛苦了", "真方便", "好用"],
        "謝謝您！很高興幫得上忙 😊",
    ),
    (&["掰掰", "拜拜", "再見", "bye", "byebye", "bye bye"], "再見！"),
];
const PARTICLES: [&str; 17] = [
    "你們",
    "你",
    "您",
    "妳",
    "囉",
    "喔",
    "哦",
    "啦",
    "啊",
    "了",
    "～",
    "~",
    "！",
    "!",
    "。",
    "小幫手",
    "大家",
];

/// The answer to a text that is small talk.
pub(crate) fn answer(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let text = text.trim_matches(|c: char| !c.is_alphanumeric());
    let shorter = || {
        let mut rest = text;
        while let Some(short) = PARTICLES.iter().find_map(|particle| rest.strip_suffix(particle)) {
            rest = short.trim_end();
        }
        rest
    };
    let is = |said: &str| TALK.iter().find(|(words, _)| words.contains(&said)).map(|(_, answer)| *answer);
    is(text).or_else(|| is(shorter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_talk_is_answered_and_nothing_else_is_small_talk() {
        for text in [
            "謝謝",
            "謝謝你！",
            "謝謝您喔",
            "3Q",
            "Hello",
            "你好啊",
            "好的",
            "OK",
            "👍 謝謝",
            "太棒了！",
            "掰掰～",
        ] {
            assert!(answer(text).is_some(), "{text}");
        }
        for text in ["", "👍", "謝謝 120 現金", "好吃", "午餐", "你", "東京都", "取消", "說明"]
        {
            assert!(answer(text).is_none(), "{text}");
        }
    }
}
