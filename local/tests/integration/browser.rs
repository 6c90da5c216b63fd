//! The page, played with in Debian's Chromium. A scenario is a function under `browser/`, its promise is the name here;
//! in each of them a console error or a request to anywhere else is a failure. Screenshots are kept in
//! `target/screenshots`.
#![allow(clippy::print_stdout, reason = "the frame rate is reported, not asserted")]

use std::process::Command;
use std::time::Duration;

use onetap_config::Variables;
use onetap_local::arguments::Options;
use onetap_local::{Local, OwnBot};
use onetap_servers::heavy_test;

/// Three times the usual time for a forecast and for a reply: a machine under load needs it. (A provider gets half of it,
/// and a delivery ends before its lock.)
const TIMES: webhook::Times = webhook::Times {
    delivery: Duration::from_millis(4800),
    forecast: Duration::from_secs(3),
    reply: Duration::from_millis(1500),
};

/// Plays `scenario` on a bundle of its own, with these variables.
async fn play(scenario: &'static str, variables: &[(&str, &str)]) {
    play_with(scenario, variables, None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromium and playwright-core"]
async fn the_page_with_a_bot_of_ones_own_has_its_phone_its_lock_and_its_keys() {
    play_with("own_bot", &[], Some(crate::own_bot::shop())).await;
}

/// The same with a bot of one's own.
async fn play_with(scenario: &'static str, variables: &[(&str, &str)], own_bot: Option<OwnBot>) {
    let _heavy = heavy_test();
    let set = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    let options = Options { port: Some(0), times: TIMES, ..Options::default() };
    let local = Local::start_with(&options, &Variables::from_lookup(set), own_bot).await.unwrap();
    let folder = env!("CARGO_MANIFEST_DIR");
    let mut node = Command::new("node");
    node.arg(format!("{folder}/tests/browser/run.mjs"))
        .arg(local.url())
        .arg(format!("{folder}/../target/screenshots"))
        .arg(scenario)
        .env("ONETAP_TOOLS", std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
    let output = tokio::task::spawn_blocking(move || node.output()).await.unwrap().expect("node can be run");
    local.stop().await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    print!("{}", text(&output.stdout));
    assert!(output.status.success(), "{scenario}:\n{}{}", text(&output.stdout), text(&output.stderr));
}

macro_rules! scenarios {
    ($($promise:ident: $scenario:literal $([$($name:literal = $value:literal)*])?,)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "needs chromium and playwright-core"]
        async fn $promise() {
            play($scenario, &[$($(($name, $value),)*)?]).await;
        }
    )*};
}

scenarios! {
    a_double_tap_shows_one_forecast_and_one_busy_bubble: "double_tap",
    the_lock_is_shown_while_it_is_held: "lock_shown" ["WEATHER_FRESH_SECONDS" = "0"],
    twenty_taps_get_twenty_answers_and_no_two_forecasts_at_once: "twenty_taps" ["WEATHER_FRESH_SECONDS" = "0"],
    a_redelivery_adds_nothing_to_the_chat: "redelivery",
    one_users_lock_does_not_hold_up_another: "two_users" ["WEATHER_FRESH_SECONDS" = "0"],
    a_provider_that_is_down_is_replaced_by_the_fallback_and_kept_forecasts_cost_no_call: "provider_down",
    with_both_providers_down_the_old_forecast_is_shown_with_its_time: "both_down",
    a_slow_provider_is_replaced_in_time: "provider_slow",
    after_a_429_the_page_shows_that_the_provider_is_left_alone: "provider_refuses",
    the_weather_is_told_in_both_languages_and_by_the_keyboard: "weather_words",
    the_weather_fits_a_phone: "weather_phone",
    of_a_real_provider_the_page_says_that_its_faults_are_simulated: "weather_real"
        ["WEATHER_PROVIDER" = "open-meteo" "OPEN_METEO_BASE_URL" = "http://127.0.0.1:9"],
    with_the_store_down_the_page_shows_that_it_fails_open: "store_down",
    the_keyboard_alone_sends_a_message_a_tap_and_a_place: "keyboard",
    what_is_typed_is_shown_as_text_and_never_as_markup: "markup",
    of_two_tabs_that_edit_one_wins_and_the_other_sees_the_conflict: "two_tabs",
    two_edits_at_once_conflict_with_if_match_and_merge_without: "both_at_once",
    an_entry_of_the_chat_can_be_edited_and_a_bad_edit_is_explained: "chat_entry",
    two_entries_delivered_four_times_are_two_rows_that_edits_change_and_an_erasure_removes: "ledger_chat",
    spending_and_income_are_two_sums_in_both_languages_and_on_a_phone: "ledger_income",
    the_examples_about_the_weather_get_forecasts: "weather_examples",
    a_month_is_chosen_and_an_entry_moves_to_the_month_of_its_new_date: "ledger_months",
    the_ledger_and_its_csv_file_show_what_users_write_as_text: "ledger_csv",
    a_ledger_that_cannot_be_read_says_so_and_comes_back_by_itself: "ledger_outage",
    of_hundreds_of_entries_the_newest_are_shown_and_the_file_has_all: "ledger_long",
    a_job_with_duplicates_and_a_killed_consumer_ends_with_equal_counts: "duplicates",
    a_job_of_other_stages_shows_its_steps_and_its_state_does_not_follow_tokens: "stages"
        ["EVENT_STAGES" = r#"[{"stage":"plan","first":0,"last":9},{"stage":"token","first":1000,"last":999999,"state":false},
            {"stage":"done","first":10,"last":19,"ends":10}]"#],
    a_client_that_breaks_off_and_resumes_loses_nothing: "reconnect",
    a_plain_event_source_sees_every_event_once_with_the_store_down_for_ten_seconds: "outage",
    hundreds_of_keys_and_thousands_of_events_cost_no_more_than_a_screenful: "crowd",
    at_a_phones_width_nothing_has_to_be_scrolled_sideways: "phone_width",
    in_dark_mode_the_page_is_dark: "dark_mode",
    both_languages_have_every_word_and_the_choice_is_remembered: "languages",
    a_runner_that_cannot_be_reached_is_told_and_come_back_to: "lost",
    a_page_in_use_is_pictured_by_day_by_night_and_in_chinese: "pictures",
}
