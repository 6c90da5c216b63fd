//! `docs/own-bot.md`. Its bot is built, tested and deployed by `scripts/package` and the tests of what is built apart.

use onetap_tests::functions::root;

/// The file of this name, as the page has it.
pub(crate) fn file(name: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/own-bot.md")).unwrap();
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut texts = blocks.filter_map(|(_, block)| {
        let (first, text) = block.split_once('\n')?;
        (first.trim_start_matches(['/', '#', ' ']) == name).then(|| text.to_owned())
    });
    texts.next().unwrap_or_else(|| panic!("the page has no {name}"))
}

#[test]
fn the_phone_of_the_page_is_the_example_of_the_runner() {
    let example = std::fs::read_to_string(root().join("local/examples/own_bot.rs")).unwrap();
    let main_of = |text: &str| text[text.find("#[tokio::main]").unwrap()..].to_owned();
    assert_eq!(main_of(&file("examples/local.rs")), main_of(&example).trim_end());
}
