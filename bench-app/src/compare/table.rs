//! The table on standard output: one line per cell, and below each route what pipelining is worth.

use std::fmt::Write as _;

use super::report::{Ratio, Row};
use crate::cli::{Access, Subject};

const HEADINGS: [&str; 13] = [
    "database",
    "route",
    "driver",
    "access",
    "requests/s",
    "min",
    "max",
    "p50 ms",
    "p99 ms",
    "errors",
    "server µs",
    "database µs",
    "peak MB",
];

/// Columns from here on hold figures.
const FIGURES: usize = 4;

pub(super) fn render(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    // Cells of one route stand together, whatever the order in which they were measured.
    for (index, row) in rows.iter().enumerate() {
        lines.push(line(row));
        let same = |other: &Row| other.database == row.database && other.route == row.route;
        if !rows[index + 1..].iter().any(same) {
            let own = |row: &&Row| same(row) && row.subject == row.database.driver();
            let of = |access: Subject| rows.iter().filter(own).find(|row| row.access == access.access());
            let ratio = of(Subject::Own(Access::Pipelined)).zip(of(Subject::Own(Access::Checkout)));
            lines.extend(
                ratio.and_then(|(pipelined, checkout)| Ratio::of(pipelined, checkout)).map(ratio_line),
            );
        }
    }
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut table = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0..FIGURES => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        table.push_str(text.trim_end());
        table.push('\n');
    }
    table
}

fn line(row: &Row) -> [String; HEADINGS.len()] {
    let rate = row.requests_per_second;
    [
        row.database.to_string(),
        row.route.clone(),
        row.subject.to_owned(),
        row.access.to_owned(),
        format!("{:.0}", rate.median),
        format!("{:.0}", rate.min),
        format!("{:.0}", rate.max),
        decimal(row.latency_ms.p50, 2),
        decimal(row.latency_ms.p99, 2),
        row.errors.to_string(),
        decimal(row.server_cpu_us_per_request, 1),
        decimal(row.database_cpu_us_per_request, 1),
        decimal(row.peak_rss_bytes.map(|bytes| bytes as f64 / 1e6), 1),
    ]
}

fn ratio_line(ratio: Ratio) -> [String; HEADINGS.len()] {
    let mut line = HEADINGS.map(|_| String::new());
    "pipelined : checkout".clone_into(&mut line[3]);
    line[4] = format!("{:.2}x", ratio.requests_per_second);
    line[10] = ratio.server_cpu.map_or_else(absent, |cpu| format!("{cpu:.2}x"));
    line
}

fn decimal(figure: Option<f64>, places: usize) -> String {
    figure.map_or_else(absent, |figure| format!("{figure:.places$}"))
}

fn absent() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::cli::Access;
    use crate::compare::report::tests::row;

    #[test]
    fn cells_stand_above_their_ratio() {
        let table = render(&[row(Access::Pipelined, &[300, 100, 200]), row(Access::Checkout, &[50])]);
        let expected = "\
database  route  driver       access                requests/s  min  max  p50 ms  p99 ms  errors  server µs  database µs  peak MB
postgres  /db    pg-pipeline  pipelined                    100   50  150       -  200.00       3       10.0            -      0.0
postgres  /db    pg-pipeline  checkout                      25   25   25       -   50.00       1       10.0            -      0.0
                              pipelined : checkout       4.00x                                        1.00x
";
        assert_eq!(table, expected);
    }

    #[test]
    fn one_access_alone_has_no_ratio() {
        let table = render(&[row(Access::Checkout, &[50])]);
        assert_eq!(table.lines().count(), 2);
    }
}
