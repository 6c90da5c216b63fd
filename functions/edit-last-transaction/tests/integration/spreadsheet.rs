//! The CSV of a month, as Python and LibreOffice read it.

use crate::support;

use std::fs::{read_to_string, write};
use std::path::Path;
use std::process::Command;

use onetap_ledger::Field;
use serde_json::{Value, json};
use support::{Api, LUNCH, memory};

/// Texts that a CSV must quote, and texts that a spreadsheet would run. LibreOffice drops the NUL and then finds a formula.
const TEXTS: [&str; 12] = [
    "=1+1",
    "+1+1",
    "-5",
    "@SUM(F2:F9)",
    "＝1+1",
    "=HYPERLINK(\"http://example.com\",\"點我\")",
    "\0=1+1",
    "\t=1+1",
    "a,b \"c\" 'd'; e",
    "第一行\r\n第二行\n\n第四行",
    " 前後空白 ",
    "午餐",
];

/// How many of them would be run.
const FORMULAS: usize = 8;

/// The CSV of a month with these texts, each as the item and the remark of an entry.
async fn csv() -> String {
    let api = Api::new(memory());
    for (n, text) in TEXTS.iter().enumerate() {
        let entry = LUNCH.replace("140000", &format!("1400{n:02}")).replace("100.10", &format!("{n}.50"));
        let entry = entry.replace("\"午餐\"", &json!(text).to_string());
        let entry = entry.replace(r#""附註":"""#, &format!(r#""附註":{}"#, json!(text)));
        assert!(api.put(&entry).await.status < 300);
    }
    api.transactions("?month=2025-11&format=csv", &[]).await.body
}

/// The rows that the CSV must have, where `texts` stand for those of the entries.
fn rows(texts: &[String]) -> Vec<Vec<String>> {
    let header: Vec<String> = Field::ALL.map(|field| field.name().to_owned()).into();
    let row = |(n, text): (usize, &String)| {
        let (amount, id) = (format!("{n}.50"), format!("20251129-1400{n:02}"));
        let cells = [
            "bookkeeping",
            "2025-11-29",
            "14:30",
            text,
            "TWD",
            &amount,
            "1.0",
            "信用卡",
            &id,
            "",
            "飲食",
            "日常",
            "必要",
            "無",
            "",
            text,
        ];
        cells.map(str::to_owned).into()
    };
    std::iter::once(header).chain(texts.iter().enumerate().map(row)).collect()
}

/// The texts as they stand in the CSV.
fn harmless() -> Vec<String> {
    let apostrophe = |n: usize| if n < FORMULAS { "'" } else { "" };
    TEXTS.iter().enumerate().map(|(n, text)| format!("{}{text}", apostrophe(n))).collect()
}

/// Runs a Python program over a file, and returns the JSON that it prints.
fn python(program: &str, file: &Path) -> Value {
    let output = Command::new("python3").args(["-c", program]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn python_reads_the_same_rows_from_the_csv() {
    const PROGRAM: &str = "
import csv, json, sys
with open(sys.argv[1], encoding='utf-8-sig', newline='') as file:
    print(json.dumps(list(csv.reader(file, strict=True))))
";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("month.csv");
    write(&file, csv().await).unwrap();
    assert_eq!(python(PROGRAM, &file), json!(rows(&harmless())));
}

/// Opens a CSV in LibreOffice: its rows, and of each cell its type, its value or text, and its formula.
fn opened(csv: &str) -> Vec<Vec<(String, String, Option<String>)>> {
    const PROGRAM: &str = "
import json, sys, xml.etree.ElementTree as tree
def named(name):
    prefix, name = name.split(':')
    return '{urn:oasis:names:tc:opendocument:xmlns:' + prefix + ':1.0}' + name
def text(part):
    special = {named('text:s'): ' ' * int(part.get(named('text:c'), 1)), named('text:tab'): '\\t'}
    inner = special.get(part.tag, part.text or '')
    return inner + ''.join(text(child) + (child.tail or '') for child in part)
def cell(of):
    kind = of.get(named('office:value-type'), '')
    value = {'float': 'office:value', 'date': 'office:date-value', 'time': 'office:time-value'}.get(kind)
    shown = of.get(named(value)) if value else '\\n'.join(text(line) for line in of.findall(named('text:p')))
    return kind, shown, of.get(named('table:formula'))
rows = []
for row in tree.parse(sys.argv[1]).iter(named('table:table-row')):
    cells = row.findall(named('table:table-cell'))
    rows.append([cell(of) for of in cells for _ in range(int(of.get(named('table:number-columns-repeated'), 1)))])
print(json.dumps(rows))
";
    let folder = tempfile::tempdir().unwrap();
    let (file, profile) = (folder.path().join("month.csv"), folder.path().join("profile"));
    write(&file, csv).unwrap();
    let output = Command::new("soffice")
        .arg(format!("-env:UserInstallation=file://{}", profile.display()))
        // Comma, quote, UTF-8 and the first row: what its dialog proposes for such a file.
        .args(["--headless", "--norestore", "--infilter=CSV:44,34,76,1", "--convert-to", "fods", "--outdir"])
        .arg(folder.path())
        .arg(&file)
        .output()
        .expect("soffice: scripts/test --all installs it");
    let sheet = folder.path().join("month.fods");
    assert!(read_to_string(&sheet).is_ok(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_value(python(PROGRAM, &sheet)).unwrap()
}

#[tokio::test]
#[ignore = "needs LibreOffice"]
async fn libreoffice_opens_the_same_rows_and_runs_no_formula() {
    let read = opened(&csv().await);
    // LibreOffice has one kind of line break, and no NUL.
    let texts: Vec<String> =
        harmless().iter().map(|text| text.replace("\r\n", "\n").replace('\0', "")).collect();
    let rows = rows(&texts);
    assert_eq!(read.len(), rows.len());
    for (n, (read, row)) in read.iter().zip(&rows).enumerate() {
        for (field, ((kind, value, formula), cell)) in Field::ALL.into_iter().zip(read.iter().zip(row)) {
            assert_eq!(*formula, None, "{cell}");
            let expected = match field {
                _ if n == 0 => ("string", cell.clone()),
                Field::Date => ("date", cell.clone()),
                Field::Time => ("time", "PT14H30M00S".to_owned()),
                Field::Amount | Field::Rate => {
                    ("float", cell.trim_end_matches('0').trim_end_matches('.').to_owned())
                }
                _ if cell.is_empty() => ("", String::new()),
                _ => ("string", cell.clone()),
            };
            assert_eq!((kind.as_str(), value), (expected.0, &expected.1), "{field:?}");
        }
        assert!(read.len() >= row.len());
    }
}

#[test]
#[ignore = "needs LibreOffice"]
fn libreoffice_runs_what_has_no_apostrophe() {
    let read = opened("\u{feff}=1+1,\0=1+1,'=1+1\r\n");
    let run = |cell: &(String, String, Option<String>)| cell.2.is_some();
    assert_eq!(read[0].iter().map(run).collect::<Vec<_>>(), [true, true, false]);
}
