//! `/metrics`: figures in Prometheus's text format (its "Text-based format" page).

use std::fmt::Write as _;

use crate::store::{Metric, Sample};

/// The content type that the format asks for.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All samples, those of one metric together as the format demands. `threads` has the samples of each thread.
pub(super) fn render(threads: &[Vec<Sample>]) -> String {
    let mut metrics: Vec<Metric> = Vec::new();
    for sample in threads.iter().flatten() {
        if !metrics.contains(&sample.metric) {
            metrics.push(sample.metric);
        }
    }
    let mut page = String::new();
    for metric in metrics {
        let kind = if metric.counter { "counter" } else { "gauge" };
        // Writing to a string cannot fail.
        let _ = writeln!(page, "# HELP {} {}\n# TYPE {} {kind}", metric.name, metric.help, metric.name);
        for (thread, samples) in threads.iter().enumerate() {
            for sample in samples.iter().filter(|sample| sample.metric == metric) {
                let _ = write!(page, "{}{{thread=\"{thread}\"", metric.name);
                for (name, value) in &sample.labels {
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    let _ = write!(page, ",{name}=\"{value}\"");
                }
                let _ = writeln!(page, "}} {}", sample.value);
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::store::{Metric, Sample};

    #[test]
    fn samples_of_one_metric_stand_together() {
        let queries = Metric { name: "pool_queries_total", counter: true, help: "Queries answered." };
        let waiting = Metric { name: "pool_waiting", counter: false, help: "Callers that wait." };
        let thread = |value| {
            vec![
                Sample { metric: queries, labels: vec![("pipe", "0".into())], value },
                Sample { metric: waiting, labels: vec![("why", "a \"b\"".into())], value: 0 },
            ]
        };
        assert_eq!(
            render(&[thread(5), thread(6)]),
            "# HELP pool_queries_total Queries answered.\n\
             # TYPE pool_queries_total counter\n\
             pool_queries_total{thread=\"0\",pipe=\"0\"} 5\n\
             pool_queries_total{thread=\"1\",pipe=\"0\"} 6\n\
             # HELP pool_waiting Callers that wait.\n\
             # TYPE pool_waiting gauge\n\
             pool_waiting{thread=\"0\",why=\"a \\\"b\\\"\"} 0\n\
             pool_waiting{thread=\"1\",why=\"a \\\"b\\\"\"} 0\n"
        );
    }
}
