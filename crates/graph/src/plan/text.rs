//! The plan as text, for people: each launch with its kernel, why it was chosen, what it binds and its rows.

use std::fmt;

use super::{Buffer, Plan, Rows};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan {} for {}", self.graph, self.target)?;
        for entry in &self.entries {
            for variant in &entry.variants {
                let guards: Vec<String> = variant
                    .guards
                    .iter()
                    .map(|g| format!("{} {}..={}", g.symbol.name(), g.low, g.high))
                    .collect();
                writeln!(
                    f,
                    "entry {} ({}): {} launches",
                    entry.name,
                    guards.join(", "),
                    variant.launches.len()
                )?;
                for launch in &variant.launches {
                    let kernel = &self.kernels[launch.kernel as usize];
                    let rows = match launch.rows {
                        Rows::Const(n) => n.to_string(),
                        Rows::Sym(s) => s.name().to_owned(),
                    };
                    let bound: Vec<String> = launch
                        .arguments
                        .iter()
                        .map(|&b| self.buffer_name(b))
                        .collect();
                    writeln!(
                        f,
                        "  {:<34} [{}: {}]  {}  rows {rows}  # {}",
                        kernel.spec.name(),
                        kernel.candidate,
                        kernel.why,
                        bound.join(" "),
                        launch.label,
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    fn buffer_name(&self, buffer: Buffer) -> String {
        match buffer {
            Buffer::Weight(i) => format!("@{}", self.weights[i as usize].name),
            Buffer::State(i) => format!("!{}", self.states[i as usize].name),
            Buffer::Input(i) => self.inputs[i as usize].name.clone(),
            Buffer::Result(i) => format!("={}", self.results[i as usize].name),
            Buffer::Scratch(i) => format!("%{i}"),
        }
    }
}
