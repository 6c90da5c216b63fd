//! The programs in `events/producers`, as a person copies them: what they send to SQS is published, once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onetap_bus::{Config, Stages};
use onetap_sqs::{SqsEvent, SqsMessage};
use onetap_store::Log;
use onetap_telemetry::Recorder;
use queue_consumer::QueueConsumer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::later;
use crate::harness::moto::Moto;
use crate::harness::refusing::{Refuse, Refusing};
use crate::schema::{judge, schema, stage_rules};
use crate::support::World;

/// The default stages, and the one that the programs call their own.
const STAGES: &str = r#"[{"stage":"vision","first":10,"last":19},{"stage":"rule","first":20,"last":29},
    {"stage":"answer","first":30,"last":39},{"stage":"reward","first":40,"last":49},
    {"stage":"done","first":50,"last":59,"ends":51},{"stage":"token","first":1000,"last":999999,"state":false}]"#;
/// The numbers that the programs send with `--tokens 25`, in this order.
const SEQS: [std::ops::RangeInclusive<u64>; 6] = [10..=11, 20..=20, 1000..=1024, 30..=30, 40..=40, 51..=51];

fn seqs() -> Vec<u64> {
    SEQS.into_iter().flatten().collect()
}

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

/// A copy of a program, and where it sends to.
struct Producer {
    language: Language,
    folder: TempDir,
    endpoint: String,
    queue: &'static str,
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Language {
    fn script(self) -> &'static str {
        match self {
            Language::Python => "send.py",
            Language::Node => "send.mjs",
        }
    }
}

impl Producer {
    fn new(language: Language, endpoint: &str, queue: &'static str) -> Producer {
        let folder = tempfile::tempdir().unwrap();
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/producers").join(language.script());
        fs::copy(program, folder.path().join(language.script())).unwrap();
        let modules = tools().join("node_modules");
        assert!(
            modules.join("@aws-sdk/client-sqs").is_dir(),
            "@aws-sdk/client-sqs not found: run scripts/tools"
        );
        symlink(modules, folder.path().join("node_modules")).unwrap();
        Producer { language, folder, endpoint: endpoint.to_owned(), queue }
    }

    /// Changes what the tokens hold to so many characters of three bytes.
    fn with_large_tokens(self, characters: usize) -> Producer {
        match self.language {
            Language::Python => self.with(r#"f"字{n}""#, &format!(r#""字" * {characters}"#)),
            Language::Node => self.with("`字${n}`", &format!(r#""字".repeat({characters})"#)),
        }
    }

    /// Changes the text of the program.
    fn with(self, old: &str, new: &str) -> Producer {
        let script = self.folder.path().join(self.language.script());
        let text = fs::read_to_string(&script).unwrap();
        assert!(text.contains(old));
        fs::write(script, text.replace(old, new)).unwrap();
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match self.language {
            Language::Python => Command::new(tools().join("venv/bin/python")),
            Language::Node => Command::new("node"),
        };
        command.arg(self.language.script()).args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).envs([
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            // The SDK warns of versions of Node that it will not support one day.
            ("NODE_NO_WARNINGS", "1"),
        ]);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        // The host is Amazon's, as a stack's output has it: the programs call AWS_ENDPOINT_URL all the same.
        let queue = format!("https://sqs.us-east-1.amazonaws.com/123456789012/{}", self.queue);
        output_of(self.command(arguments).env("QUEUE_URL", queue)).await
    }

    async fn send(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended
    }
}

async fn output_of(command: &mut Command) -> Ended {
    let output = command.output().await.expect("the tools are installed: run scripts/tools");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn tools() -> PathBuf {
    PathBuf::from(std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"))
}

/// A queue of moto's, and a consumer on a store.
struct Pipeline {
    moto: Arc<Moto>,
    queue: (String, String),
    name: &'static str,
    world: World,
    consumer: QueueConsumer,
    stages: Stages,
}

impl Pipeline {
    async fn start(name: &'static str) -> Pipeline {
        let moto = Arc::new(Moto::start().await);
        let fifo = name.ends_with(".fifo");
        let attributes = if fifo { json!({"FifoQueue": "true"}) } else { json!({}) };
        let queue = moto.create(name, attributes).await;
        let world = World::memory().await;
        let stages = Stages::from_json(STAGES).unwrap();
        let config = Config { stages: stages.clone(), ..world.config.clone() };
        let consumer = QueueConsumer::new(world.store.clone(), config);
        Pipeline { moto, queue, name, world, consumer, stages }
    }

    fn producer(&self, language: Language) -> Producer {
        Producer::new(language, &self.moto.url, self.name)
    }

    /// Everything that the queue holds, which is empty afterwards.
    async fn receive(&self) -> Vec<SqsMessage> {
        let mut messages = Vec::new();
        while self.moto.count(&self.queue).await > 0 {
            let event = self.moto.receive(&self.queue).await;
            self.moto.delete(&self.queue, &event.records.iter().collect::<Vec<_>>()).await;
            messages.extend(event.records);
        }
        messages
    }

    /// How the consumer counts what becomes of these messages.
    async fn consume(&self, messages: &[SqsMessage]) -> Vec<String> {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        for batch in messages.chunks(10) {
            let mut event = SqsEvent::default();
            event.records = batch.to_vec();
            self.consumer.handle(event, later()).await;
        }
        let counted = recorder.prometheus();
        counted
            .lines()
            .filter_map(|line| Some(line.strip_prefix("events_total{outcome=")?.to_owned()))
            .collect()
    }

    /// The numbers in the job's log, in its order.
    async fn published(&self, job_id: &str) -> Vec<u64> {
        let records = self.world.read(&Log::new(format!("scan:job:{job_id}")).unwrap()).await;
        records.iter().map(|record| json(&record.text)["seq"].as_u64().unwrap()).collect()
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn bodies(messages: &[SqsMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.body.as_deref().unwrap()).collect()
}

async fn what_is_sent_twice_is_published_once(language: Language) {
    let pipeline = Pipeline::start("jobs").await;
    let producer = pipeline.producer(language);
    let ended = producer.send(&["job-1", "--tokens", "25"]).await;
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("sent 31 events of job-1\n", ""));

    let first = pipeline.receive().await;
    assert!(first.iter().all(|message| !message.attributes.contains_key("MessageGroupId")));
    let mut valid = schema();
    valid["allOf"] = stage_rules(&pipeline.stages);
    assert_eq!(judge(&valid, &bodies(&first)), [true; 31], "each is valid by the schema");
    assert!(bodies(&first).iter().any(|body| body.contains("統一發票 🧾")), "text is sent as it is");
    assert_eq!(pipeline.consume(&first).await, ["\"published\"} 31"]);

    producer.send(&["job-1", "--tokens", "25"]).await;
    let second = pipeline.receive().await;
    assert_eq!(pipeline.consume(&second).await, ["\"duplicate\"} 31"]);
    let mut published = pipeline.published("job-1").await;
    published.sort_unstable();
    let mut expected = seqs();
    expected.sort_unstable();
    assert_eq!(published, expected, "one effect each");
}

async fn a_fifo_queue_keeps_the_order_and_drops_repetitions_itself(language: Language) {
    let pipeline = Pipeline::start("jobs.fifo").await;
    let producer = pipeline.producer(language);
    producer.send(&["job-1", "--tokens", "25"]).await;
    producer.send(&["job-1", "--tokens", "25"]).await;
    let messages = pipeline.receive().await;
    assert_eq!(messages.len(), 31, "the same deduplication id within five minutes");
    for message in &messages {
        let event = json(message.body.as_deref().unwrap());
        let id = format!("job-1:{}:{}", event["stage"].as_str().unwrap(), event["seq"]);
        assert_eq!(message.attributes["MessageDeduplicationId"], id);
        assert_eq!(message.attributes["MessageGroupId"], "job-1");
    }
    assert_eq!(pipeline.consume(&messages).await, ["\"published\"} 31"]);
    assert_eq!(pipeline.consume(&messages).await, ["\"duplicate\"} 31"], "what is delivered again");
    assert_eq!(pipeline.published("job-1").await, seqs(), "in their order");

    let longest = "j".repeat(128);
    producer.send(&[&longest]).await;
    let messages = pipeline.receive().await;
    assert_eq!(pipeline.consume(&messages).await, ["\"published\"} 6"], "{longest}");
}

async fn what_a_queue_does_not_take_is_sent_again(language: Language) {
    let pipeline = Pipeline::start("jobs").await;
    let refusing = Refusing::start(pipeline.moto.clone(), Refuse::SomeOnce);
    let producer = Producer::new(language, &refusing.url, pipeline.name);
    let ended = producer.send(&["job-1", "--tokens", "25"]).await;
    assert_eq!(ended.out, "sent 31 events of job-1\n");
    assert!(ended.err.contains("4 not accepted (InternalError), sending again"), "{}", ended.err);
    let messages = pipeline.receive().await;
    let refused = refusing.refused();
    assert!(refused.len() > 10, "{}", refused.len());
    assert!(refused.iter().all(|body| bodies(&messages).contains(&body.as_str())), "nothing is lost");
    assert_eq!(pipeline.consume(&messages).await, ["\"published\"} 31"]);
}

async fn large_events_are_sent_in_smaller_batches_and_too_large_ones_are_refused(language: Language) {
    let pipeline = Pipeline::start("jobs").await;
    let counting = Refusing::start(pipeline.moto.clone(), Refuse::SomeOnce);
    let producer = Producer::new(language, &counting.url, pipeline.name);
    producer.with_large_tokens(43_000).send(&["job-1", "--tokens", "25"]).await;
    let messages = pipeline.receive().await;
    assert_eq!(pipeline.consume(&messages).await, ["\"published\"} 31"]);
    let ended = pipeline.producer(language).with_large_tokens(44_000).run(&["job-2", "--tokens", "1"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("token 1000 is over 128 KiB"), "{}", ended.err);
}

async fn what_is_wrong_is_said_in_a_line(language: Language) {
    let moto = Arc::new(Moto::start().await);
    moto.create("jobs", json!({})).await;
    let producer = |endpoint: &str| Producer::new(language, endpoint, "jobs");

    let ended = producer(&moto.url).run(&["--help"]).await;
    assert_eq!(ended.code, Some(0));
    for word in ["QUEUE_URL", "--domain", "--tokens"] {
        assert!(ended.out.contains(word), "{}", ended.out);
    }
    let without_queue = output_of(&mut producer(&moto.url).command(&["job-1"])).await;
    assert_eq!(without_queue.code, Some(2));
    assert!(without_queue.err.contains("QUEUE_URL is not set"), "{}", without_queue.err);
    for arguments in [
        &[][..],
        &["job 1"],
        &["job-1", "--domain", "Scan"],
        &["job-1", "--tokens", "many"],
        &["job-1", "--tokens=-1"],
        &["job-1", "--bad"],
    ] {
        assert_eq!(producer(&moto.url).run(arguments).await.code, Some(2), "{arguments:?}");
    }

    let all = Refusing::start(moto.clone(), Refuse::All);
    let wrong = Refusing::start(moto.clone(), Refuse::AsWrong);
    let script = language.script();
    for (endpoint, said) in [
        (all.url.as_str(), format!("{script}: 6 events were not accepted: run it again, that is harmless\n")),
        (wrong.url.as_str(), format!("{script}: the queue refuses an event: InvalidMessageContents\n")),
    ] {
        let ended = producer(endpoint).run(&["job-1"]).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
        assert!(ended.err.ends_with(&said), "{}", ended.err);
    }
    for (seq, said) in [
        (r#""finish", 0"#, format!("{script}: finish is not among the STAGES of this program\n")),
        (r#""done", 10"#, format!("{script}: done has only 10 numbers\n")),
    ] {
        let ended = producer(&moto.url).with(r#""done", 1"#, seq).run(&["job-1"]).await;
        assert_eq!((ended.code, ended.err), (Some(1), said));
    }
    let gone = Producer::new(language, &moto.url, "gone").run(&["job-1"]).await;
    assert_eq!((gone.code, gone.err.lines().count()), (Some(1), 1), "{}", gone.err);
    let nobody = producer("http://127.0.0.1:1").run(&["job-1"]).await;
    assert_eq!((nobody.code, nobody.err.lines().count()), (Some(1), 1), "{}", nobody.err);
}

macro_rules! of_every_language {
    ($($promise:ident)*) => {$(
        mod $promise {
            #[tokio::test]
            #[ignore = "needs moto"]
            async fn holds_in_python() {
                super::$promise(super::Language::Python).await;
            }

            #[tokio::test]
            #[ignore = "needs moto and @aws-sdk/client-sqs"]
            async fn holds_in_node() {
                super::$promise(super::Language::Node).await;
            }
        }
    )*};
}

of_every_language! {
    what_is_sent_twice_is_published_once
    a_fifo_queue_keeps_the_order_and_drops_repetitions_itself
    what_a_queue_does_not_take_is_sent_again
    large_events_are_sent_in_smaller_batches_and_too_large_ones_are_refused
    what_is_wrong_is_said_in_a_line
}
