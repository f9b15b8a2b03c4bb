//! Pure: draws replays as SVG: the IPUs that run jobs, and the IPUs that jobs wait for, over time.

use std::fmt::Write as _;

use crate::figures::Unit;
use crate::report::formatted;
use crate::statistics::float;
use crate::timeline::{Point, Timeline};

/// Colours of the replays: each differs from the others in lightness too.
const COLOURS: [&str; 6] = [
    "#1f5fa8", "#e08214", "#2b8a3e", "#7b3294", "#7fc8f0", "#111111",
];

/// Names in a row of the legend.
const NAMES: usize = 3;

/// Means that a curve consists of.
const PARTS: u32 = 400;

/// Width of a panel.
const WIDTH: f64 = 800.0;

/// Height of a panel.
const HEIGHT: f64 = 200.0;

/// Left edge of the panels.
const LEFT: f64 = 80.0;

/// Upper edge of the first panel, and distance between two.
const TOP: f64 = 60.0;

/// A replay with the name of its policy.
pub type Named<'a> = (&'a str, &'a Timeline);

/// A panel: one value over time.
struct Panel<'a> {
    title: &'a str,
    top: f64,
    unit: Unit,
    curves: Vec<Vec<f64>>,
}

/// Draws the replays of one or more policies on controllers with so many IPUs.
pub fn svg(replays: &[Named<'_>], ipus: u64) -> String {
    let spans = replays.iter().map(|(_, timeline)| timeline.span());
    let span = spans.fold((u64::MAX, 0), |(from, to), (first, last)| {
        (from.min(first), to.max(last))
    });
    let ipus = float(ipus.max(1));
    let curves = |value: &dyn Fn(&Point) -> f64| {
        let curves = replays.iter();
        let curves = curves.map(|(_, timeline)| timeline.sampled(span, PARTS, value));
        curves.collect()
    };
    let panels = [
        Panel {
            title: "IPUs that run jobs",
            top: TOP,
            unit: Unit::Share,
            curves: curves(&|point| float(point.running) / ipus),
        },
        Panel {
            title: "IPUs that jobs wait for",
            top: 2.0 * TOP + HEIGHT,
            unit: Unit::Ipus,
            curves: curves(&|point| float(point.waiting)),
        },
    ];
    let (width, height) = (LEFT + WIDTH + 20.0, 3.0 * TOP + 2.0 * HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, (name, _)) in replays.iter().enumerate() {
        let left = LEFT + 260.0 * f64::from(u32::try_from(index % NAMES).unwrap_or(0));
        let row = 16 + 17 * (index / NAMES);
        let _ = writeln!(
            svg,
            "<text x=\"{left:.0}\" y=\"{row}\" fill=\"{}\">{}</text>",
            colour(index),
            escaped(name)
        );
    }
    for panel in &panels {
        panel.draw(&mut svg);
    }
    let duration = formatted(float(span.1.saturating_sub(span.0)), Unit::Seconds);
    let (right, bottom) = (LEFT + WIDTH, 2.0 * (TOP + HEIGHT) + 20.0);
    let _ = writeln!(
        svg,
        "<text x=\"{right:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">{duration}</text>\n</svg>"
    );
    svg
}

impl Panel<'_> {
    fn draw(&self, svg: &mut String) {
        let highest = match self.unit {
            Unit::Share => 1.0,
            Unit::Ipus | Unit::Seconds | Unit::Ratio => {
                let values = self.curves.iter().flatten().copied();
                values.fold(1.0, f64::max)
            }
        };
        let (top, bottom, right) = (self.top, self.top + HEIGHT, LEFT + WIDTH);
        let (title, edge, label) = (top - 8.0, LEFT - 6.0, top + 5.0);
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT:.0}\" y=\"{title:.0}\">{}</text>\n\
             <text x=\"{edge:.0}\" y=\"{label:.0}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{edge:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">0</text>\n\
             <path d=\"M{LEFT:.0} {top:.0}V{bottom:.0}H{right:.0}\" fill=\"none\" stroke=\"black\"/>",
            self.title,
            formatted(highest, self.unit),
        );
        for (index, curve) in self.curves.iter().enumerate() {
            let mut points = String::new();
            for (part, value) in (0_u32..).zip(curve) {
                let x = LEFT + WIDTH * (f64::from(part) + 0.5) / f64::from(PARTS);
                let y = bottom - HEIGHT * value / highest;
                let _ = write!(points, "{x:.0},{y:.1} ");
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
                points.trim_end(),
                colour(index)
            );
        }
    }
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Escapes a name for XML.
fn escaped(name: &str) -> String {
    name.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_a_curve_in_each_panel() {
        let mut timeline = Timeline::default();
        for (at, running, waiting) in [(0, 4, 0), (1_800, 8, 16), (3_600, 0, 0)] {
            timeline.add(Point {
                at,
                running,
                waiting,
                ..Point::default()
            });
        }
        let drawn = svg(&[("built-in", &timeline), ("a<b>.wasm", &timeline)], 8);
        assert_eq!(drawn.matches("<polyline").count(), 4, "{drawn}");
        for part in [
            ">built-in</text>",
            ">a&lt;b&gt;.wasm</text>",
            ">16.0 IPUs</text>",
            ">100.0 %</text>",
            ">60.0 min</text>",
            // Half of the IPUs run jobs first, and all of them later.
            "points=\"81,160.0 ",
            "879,60.0\"",
        ] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    }

    #[test]
    fn each_name_of_the_legend_has_a_place_of_its_own() {
        let timeline = Timeline::default();
        let names = ["1 minute", "10 minutes", "1 hour", "1 day", "none"];
        let drawn = svg(&names.map(|name| (name, &timeline)), 8);
        for (place, name) in [
            ("x=\"80\" y=\"16\"", names[0]),
            ("x=\"600\" y=\"16\"", names[2]),
            ("x=\"80\" y=\"33\"", names[3]),
            ("x=\"340\" y=\"33\"", names[4]),
        ] {
            let is_it = |line: &&str| line.contains(&format!(">{name}<"));
            let text = drawn.lines().find(is_it).unwrap();
            assert!(text.contains(place), "{name}: {text}");
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let drawn = svg(&[("built-in", &Timeline::default())], 0);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
