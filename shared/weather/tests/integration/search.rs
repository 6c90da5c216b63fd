//! Which places a text asks for.

use onetap_weather::places::{MAX_CHOICES, all, by_name, search};
use onetap_weather::{Found, Place};
use proptest::prelude::*;

/// The names of what was found; of several, the first ones, and how many more there are.
fn names(found: Found) -> Vec<String> {
    match found {
        Found::One(place) => vec![place.name()],
        Found::Many { first, total } => {
            let more = (total > first.len()).then(|| format!("{} more", total - first.len()));
            first.into_iter().map(Place::name).chain(more).collect()
        }
        Found::Nothing => vec![],
    }
}

/// The name without 縣, 市, 鄉, 鎮 or 區.
fn stem(name: &str) -> &str {
    name.strip_suffix(['縣', '市', '鄉', '鎮', '區']).unwrap()
}

#[test]
fn a_name_matches_as_a_whole_or_from_its_beginning() {
    let table: [(&str, &[&str]); 59] = [
        ("永和", &["新北市永和區"]),
        ("永和區", &["新北市永和區"]),
        ("新北永和", &["新北市永和區"]),
        ("新北市的永和", &["新北市永和區"]),
        ("台灣新北市永和區", &["新北市永和區"]),
        ("台北市信義區", &["臺北市信義區"]),
        ("臺北信義", &["臺北市信義區"]),
        ("北市信義", &["臺北市信義區"]),
        (" 板橋\u{3000}", &["新北市板橋區"]),
        ("信義區", &["基隆市信義區", "臺北市信義區"]),
        ("信義鄉", &["南投縣信義鄉"]),
        ("信義", &["基隆市信義區", "臺北市信義區", "南投縣信義鄉"]),
        ("中正", &["臺北市中正區", "基隆市中正區"]),
        ("南區", &["臺中市南區", "臺南市南區"]),
        ("東區", &["臺中市東區", "臺南市東區", "新竹市東區", "嘉義市東區"]),
        ("新竹東區", &["新竹市東區"]),
        ("新市", &["臺南市新市區"]),
        ("前鎮", &["高雄市前鎮區"]),
        ("東勢", &["臺中市東勢區", "雲林縣東勢鄉"]),
        ("東勢鄉", &["雲林縣東勢鄉"]),
        // a township that is called like its county
        ("台東", &["臺東縣臺東市"]),
        ("桃園", &["桃園市桃園區"]),
        ("彰化市", &["彰化縣彰化市"]),
        // old names
        ("永和市", &["新北市永和區"]),
        ("台北縣永和市", &["新北市永和區"]),
        ("淡水鎮", &["新北市淡水區"]),
        ("桃園縣中壢市", &["桃園市中壢區"]),
        ("高雄縣鳳山市", &["高雄市鳳山區"]),
        ("台南縣七股鄉", &["臺南市七股區"]),
        ("三民鄉", &["高雄市那瑪夏區"]),
        ("員林鎮", &["彰化縣員林市"]),
        ("信義市", &[]),
        // what people say
        ("小琉球", &["屏東縣琉球鄉"]),
        ("屏東小琉球", &["屏東縣琉球鄉"]),
        ("墾丁", &["屏東縣恆春鎮"]),
        ("阿里山", &["嘉義縣阿里山鄉"]),
        ("馬祖南竿", &["連江縣南竿鄉"]),
        ("台北板橋", &["新北市板橋區"]),
        ("花蓮日月潭", &[]),
        // other spellings
        ("霧台", &["屏東縣霧臺鄉"]),
        ("恒春", &["屏東縣恆春鎮"]),
        ("苑裏", &["苗栗縣苑裡鎮"]),
        ("新庄", &["新北市新莊區"]),
        ("後里", &["臺中市后里區"]),
        // the beginning of a name
        ("太麻", &["臺東縣太麻里鄉"]),
        ("台北信", &["臺北市信義區"]),
        ("新竹北", &["新竹市北區", "新竹縣北埔鄉"]),
        ("台中中", &["臺中市中區"]),
        // the middle or the end of one
        ("家鄉", &[]),
        ("里山", &[]),
        ("屯", &[]),
        ("東", &[]),
        ("鄉", &[]),
        ("台北中市", &[]),
        ("台灣", &[]),
        ("大安靜了", &[]),
        ("永和豆漿", &[]),
        ("東京", &[]),
        ("午餐", &[]),
    ];
    for (text, expected) in table {
        assert_eq!(names(search(text).found), expected, "{text}");
    }
}

#[test]
fn a_county_is_its_townships_and_the_first_of_them_are_to_choose_from() {
    for (text, first, total) in [
        ("北市", "臺北市", 12),
        ("台北", "臺北市", 12),
        ("臺北縣", "新北市永和區", 29),
        ("新北", "新北市永和區", 29),
        ("桃園市", "桃園市桃園區", 13),
        ("台東縣", "臺東縣臺東市", 16),
        ("新竹", "新竹市", 16),
        ("新竹縣", "新竹縣竹北市", 13),
        ("嘉義", "嘉義市", 20),
        ("台南", "臺南市", 37),
        ("澎湖", "澎湖縣馬公市", 6),
        ("金門", "金門縣", 6),
        ("馬祖", "連江縣", 4),
    ] {
        let found = search(text);
        let Found::Many { first: choices, total: all } = found.found else { panic!("{text}") };
        assert!(choices[0].name().starts_with(first), "{text}: {choices:?}");
        assert_eq!((choices.len(), all), (total.min(MAX_CHOICES), total), "{text}");
        assert!(!found.full_name, "{text}");
    }
}

#[test]
fn words_about_the_weather_are_set_aside() {
    // the text, whether it asks for the weather, what remains, how many places that is
    for (text, asks, name, places) in [
        ("永和天氣", true, "永和", 1),
        ("永和區 天氣？", true, "永和區", 1),
        ("永和天氣如何", true, "永和", 1),
        ("永和的天氣怎麼樣呢", true, "永和", 1),
        ("天氣 永和", true, "永和", 1),
        ("請問明天台北信義區會不會下雨？☔", true, "臺北信義區", 1),
        ("今天永和會下雨嗎", true, "永和", 1),
        ("永和明天要帶傘嗎", true, "永和", 1),
        ("永和明天需不需要帶雨傘", true, "永和", 1),
        ("永和現在幾度", true, "永和", 1),
        ("可以告訴我永和這週末的天氣嗎", true, "永和", 1),
        ("永和星期六會不會很熱", true, "永和", 1),
        ("永和氣溫預報", true, "永和", 1),
        ("永和降雨機率多少", true, "永和", 1),
        ("那永和呢", false, "永和", 1),
        ("那瑪夏呢", false, "那瑪夏", 1),
        ("今天天母天氣", true, "天母", 1),
        ("明天天祥會冷嗎", true, "天祥", 1),
        ("台北大後天會下雨嗎", true, "臺北", 12),
        ("台中正在下雨嗎", true, "臺中", 29),
        ("中正在下雨嗎", true, "中正", 2),
        ("合歡山會下雪嗎", true, "合歡山", 1),
        ("台北天氣", true, "臺北", 12),
        ("明天會下雨嗎", true, "", 0),
        ("天氣", true, "", 0),
        ("今天天氣", true, "", 0),
        ("會不會下雨", true, "", 0),
        ("我家明天要帶傘嗎", true, "", 0),
        ("今天", false, "", 0),
        ("？！", false, "", 0),
        ("", false, "", 0),
        ("東京天氣", true, "東京", 0),
        ("今天天氣真好我們出去玩", true, "真好我們出去玩", 0),
        ("謝謝", false, "謝謝", 0),
        ("雨傘", false, "雨傘", 0),
        ("永和下雨了", false, "永和下雨了", 0),
        ("永和好熱喔", false, "永和好熱喔", 0),
        ("Ｔａｉｐｅｉ　１０１", false, "taipei101", 0),
    ] {
        let found = search(text);
        assert_eq!((found.asks_weather, found.name.as_str()), (asks, name), "{text}");
        let total = match found.found {
            Found::One(_) => 1,
            Found::Many { total, .. } => total,
            Found::Nothing => 0,
        };
        assert_eq!(total, places, "{text}");
    }
}

#[test]
fn a_full_name_is_a_township_with_its_suffix_or_behind_its_whole_county() {
    for text in ["永和區", "永和市", "信義區", "台北信義區", "北市信義區", "新北市永和", "永 和 區。"]
    {
        assert!(search(text).full_name, "{text}");
    }
    for text in
        ["永和", "台北信義", "台北市信", "台北", "台北市", "小琉球", "永和區天氣", "永和區嗎", "家鄉", ""]
    {
        assert!(!search(text).full_name, "{text}");
    }
}

#[test]
fn every_township_is_found_by_its_names() {
    for place in all() {
        let (county, township, name) = (place.county(), place.township(), place.name());
        let short = stem(county);
        let spaced: String = name.chars().flat_map(|c| [c, ' ']).collect();
        for text in [
            name.clone(),
            name.replace('臺', "台"),
            format!("{short}{township}"),
            format!(" {county}\u{3000}{township}\n"),
            format!("{county}，{township}！"),
            format!("📍{name}"),
            spaced,
        ] {
            let found = search(&text);
            assert_eq!((found.found, found.full_name), (Found::One(place), true), "{text}");
        }
        let asked = search(&format!("請問明天{name}會下雨嗎？"));
        assert_eq!((asked.found, asked.asks_weather, asked.name), (Found::One(place), true, name));
        // The township alone may be a county too (新竹市 is none), or several townships.
        let alike: Vec<&Place> = all().iter().filter(|other| other.township() == township).collect();
        let alone = search(township);
        assert!(alone.full_name, "{township}");
        match alone.found {
            Found::One(found) => assert_eq!(alike, [found], "{township}"),
            Found::Many { first, total } => {
                assert!(total == alike.len() && first.contains(&place), "{township}");
            }
            Found::Nothing => panic!("{township}"),
        }
        if stem(township).chars().count() > 1 {
            assert!(names(search(stem(township)).found).contains(&place.name()), "{township}");
            assert_eq!(names(search(&format!("{short}{}", stem(township))).found), [place.name()]);
        }
    }
}

#[test]
fn every_alias_is_one_place_or_one_county() {
    let rows = include_str!("../../data/aliases.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    let mut seen = Vec::new();
    for row in rows {
        let fields: Vec<&str> = row.split(',').collect();
        let [alias, county, township] = fields[..] else { panic!("{row}") };
        assert!(!seen.contains(&alias), "{alias} is there twice");
        seen.push(alias);
        for text in [alias.to_owned(), format!("{alias}天氣"), alias.replace('臺', "台")] {
            match search(&text).found {
                Found::One(place) => {
                    assert_eq!(by_name(&format!("{county}{township}")), Some(place), "{text}");
                }
                Found::Many { first, total } => {
                    assert_eq!(township, "", "{text}");
                    assert_eq!(
                        total,
                        all().iter().filter(|place| place.county() == county).count(),
                        "{text}"
                    );
                    assert!(first.iter().all(|place| place.county() == county), "{text}");
                }
                Found::Nothing => panic!("{text}"),
            }
        }
    }
}

#[test]
fn a_long_text_is_no_place() {
    for text in ["永和區".repeat(11), format!("{}永和區", "今天".repeat(20)), "的".repeat(100_000)] {
        let found = search(&text);
        assert_eq!((found.found, found.asks_weather), (Found::Nothing, false));
    }
    assert_eq!(names(search(&format!("永和{}", " ".repeat(100_000))).found), ["新北市永和區"]);
    assert_eq!(names(search(&format!("{}永和{}", "的".repeat(14), "呢".repeat(14))).found), ["新北市永和區"]);
}

proptest! {
    #[test]
    fn no_text_panics(text: String) {
        let found = search(&text);
        prop_assert!(found.name.chars().all(char::is_alphanumeric));
        prop_assert!(found.found != Found::Nothing || !found.full_name);
    }

    #[test]
    fn a_search_never_says_one_where_there_are_more(text in "[臺台中正信義東西南北大安新竹和平市區鄉縣]{2,5}") {
        let formal = text.replace('台', "臺");
        let called = |place: &&Place| [place.township(), stem(place.township())].contains(&formal.as_str());
        let townships = all().iter().filter(called).count();
        match search(&text).found {
            Found::One(_) => prop_assert!(townships <= 1),
            Found::Many { first, total } => {
                prop_assert!(total > 1 && first.len() == total.min(MAX_CHOICES));
            }
            Found::Nothing => prop_assert_eq!(townships, 0),
        }
    }
}
