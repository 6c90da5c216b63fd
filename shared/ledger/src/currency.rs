//! Currencies: the active codes of ISO 4217, and the words that people use for common ones.

/// The currency of the sums, whose rate is 1.
pub(crate) const HOME: &str = "TWD";

/// The active codes of ISO 4217 in alphabetical order, with funds, metals and test codes.
const CODES: [&str; 178] = [
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT", "BHD", "BIF", "BMD",
    "BND", "BOB", "BOV", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHE", "CHF", "CHW", "CLF",
    "CLP", "CNY", "COP", "COU", "CRC", "CUP", "CVE", "CZK", "DJF", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB",
    "EUR", "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GNF", "GTQ", "GYD", "HKD", "HNL", "HTG", "HUF",
    "IDR", "ILS", "INR", "IQD", "IRR", "ISK", "JMD", "JOD", "JPY", "KES", "KGS", "KHR", "KMF", "KPW", "KRW",
    "KWD", "KYD", "KZT", "LAK", "LBP", "LKR", "LRD", "LSL", "LYD", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT",
    "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MXV", "MYR", "MZN", "NAD", "NGN", "NIO", "NOK", "NPR", "NZD",
    "OMR", "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "PYG", "QAR", "RON", "RSD", "RUB", "RWF", "SAR", "SBD",
    "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB", "TJS",
    "TMT", "TND", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH", "UGX", "USD", "USN", "UYI", "UYU", "UYW", "UZS",
    "VED", "VES", "VND", "VUV", "WST", "XAD", "XAF", "XAG", "XAU", "XBA", "XBB", "XBC", "XBD", "XCD", "XCG",
    "XDR", "XOF", "XPD", "XPF", "XPT", "XSU", "XTS", "XUA", "XXX", "YER", "ZAR", "ZMW", "ZWG",
];

/// The words that the chat takes for a currency, besides the codes. Of two words that begin alike, the longer comes first.
pub(crate) const WORDS: [(&str, &str); 45] = [
    ("新台幣", "TWD"),
    ("新臺幣", "TWD"),
    ("台幣", "TWD"),
    ("臺幣", "TWD"),
    ("塊錢", "TWD"),
    ("塊", "TWD"),
    ("元", "TWD"),
    ("圓", "TWD"),
    ("NT$", "TWD"),
    ("NTD", "TWD"),
    ("NT", "TWD"),
    ("US$", "USD"),
    ("HK$", "HKD"),
    ("$", "TWD"),
    ("美金", "USD"),
    ("美元", "USD"),
    ("日幣", "JPY"),
    ("日圓", "JPY"),
    ("日元", "JPY"),
    ("円", "JPY"),
    ("歐元", "EUR"),
    ("€", "EUR"),
    ("港幣", "HKD"),
    ("港元", "HKD"),
    ("人民幣", "CNY"),
    ("RMB", "CNY"),
    ("韓元", "KRW"),
    ("韓幣", "KRW"),
    ("韓圜", "KRW"),
    ("₩", "KRW"),
    ("英鎊", "GBP"),
    ("£", "GBP"),
    ("澳幣", "AUD"),
    ("澳元", "AUD"),
    ("加幣", "CAD"),
    ("加元", "CAD"),
    ("新加坡幣", "SGD"),
    ("新幣", "SGD"),
    ("泰銖", "THB"),
    ("泰幣", "THB"),
    ("越南盾", "VND"),
    ("馬幣", "MYR"),
    ("令吉", "MYR"),
    ("瑞士法郎", "CHF"),
    ("印尼盾", "IDR"),
];

/// `text` itself, if it is an active code.
pub fn code(text: &str) -> Option<&'static str> {
    CODES.binary_search(&text).ok().map(|n| CODES[n])
}

/// The code for `text`, which is a code in upper or lower case, or one of the words.
pub(crate) fn from_word(text: &str) -> Option<&'static str> {
    let word = || WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, code)| *code);
    code(&text.to_ascii_uppercase()).or_else(word)
}

/// A rate of about the right size, for an example.
pub(crate) fn example_rate(code: &str) -> &'static str {
    match code {
        "EUR" => "35",
        "GBP" => "41",
        "JPY" => "0.21",
        "KRW" => "0.023",
        "CNY" | "HKD" => "4.3",
        "AUD" | "CAD" | "SGD" => "22",
        "THB" => "0.95",
        _ => "31.5",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_in_order_and_each_there_once() {
        assert!(CODES.is_sorted_by(|a, b| a < b));
        assert!(CODES.iter().all(|code| code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase())));
    }

    #[test]
    fn a_code_is_one_that_is_in_use() {
        assert_eq!((code("TWD"), code("usd"), code("DEM"), code("")), (Some("TWD"), None, None, None));
    }

    #[test]
    fn every_word_means_a_currency_in_use() {
        for (word, code_) in WORDS {
            assert_eq!(code(code_), Some(code_), "{word}");
        }
        assert_eq!(
            (from_word("usd"), from_word("美金"), from_word("貝殼")),
            (Some("USD"), Some("USD"), None)
        );
    }
}
