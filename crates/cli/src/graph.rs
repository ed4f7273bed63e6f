//! `ingle graph`: the graph at any stage, the plan, or a check of a graph's text.

use std::io::{Read, Write};
use std::path::Path;

use ingle_chat::LoadOptions;
use ingle_graph::passes::{compile, optimise, pass_names};
use ingle_graph::plan::Plan;
use ingle_graph::{Graph, parse, verify};
use ingle_models::GraphOptions;
use serde_json::json;

use crate::args::GraphArgs;
use crate::error::CliError;
use crate::{device, files};

pub fn run(args: &GraphArgs) -> Result<(), CliError> {
    if let Some(path) = &args.check {
        return check(path, args.json);
    }
    let Some(model) = &args.model else {
        let expected = "a model".into();
        return Err(CliError::Usage {
            field: "MODEL",
            expected,
            found: "nothing".into(),
        });
    };
    let (_, opened) = files::open(model)?;
    let options = LoadOptions {
        activations: args.target.activations(),
        chunk: args.target.chunk,
        graph: GraphOptions {
            kv: args.target.kv(),
        },
        ..LoadOptions::default()
    };
    let (graph, passes) = opened.graph(&options)?;
    let mut out = std::io::stdout().lock();
    if args.plan {
        let plan = device::with_target(&args.target, |target| compile(&graph, &passes, target))??;
        if args.json {
            serde_json::to_writer(&mut out, &plan).map_err(std::io::Error::from)?;
            return Ok(writeln!(out)?);
        }
        write!(out, "{plan}")?;
        return Ok(summary(&plan, opened.model.config.layers, &mut out)?);
    }
    let graph = match &args.dump_after {
        None => graph,
        Some(pass) => {
            if !pass_names().any(|name| name == pass) {
                let expected = pass_names().collect::<Vec<_>>().join(", ");
                return Err(CliError::Usage {
                    field: "--dump-after",
                    expected,
                    found: pass.clone(),
                });
            }
            let (dumped, plan) = device::with_target(&args.target, |target| {
                let dumped = optimise(&graph, &passes, target, Some(pass));
                (dumped, compile(&graph, &passes, target))
            })?;
            // Beside the graph, not in it: what reads the graph's text from a pipe reads nothing else.
            summary(&plan?, opened.model.config.layers, &mut std::io::stderr())?;
            dumped?
        }
    };
    Ok(write!(out, "{graph}")?)
}

/// For each variant, the launches of each layer and the others.
fn summary(plan: &Plan, layers: usize, out: &mut impl Write) -> Result<(), std::io::Error> {
    for entry in &plan.entries {
        for (i, variant) in entry.variants.iter().enumerate() {
            let of_layer = |layer: usize| {
                variant
                    .launches
                    .iter()
                    .filter(|l| belongs(&l.label, layer))
                    .count()
            };
            let counts: Vec<usize> = (0..layers).map(of_layer).collect();
            let (low, high) = (
                counts.iter().min().unwrap_or(&0),
                counts.iter().max().unwrap_or(&0),
            );
            let others = variant.launches.len() - counts.iter().sum::<usize>();
            let each = if low == high {
                low.to_string()
            } else {
                format!("{low} to {high}")
            };
            writeln!(
                out,
                "{} variant {i}: {each} launches a layer, {others} others",
                entry.name
            )?;
        }
    }
    Ok(())
}

/// Whether a launch with this label belongs to layer `layer`: it reads a weight or the KV pool of that layer.
fn belongs(label: &str, layer: usize) -> bool {
    let (weight, pool) = (format!("blk.{layer}."), format!("kv.{layer}"));
    label
        .split([' ', ',', '+', '(', ')'])
        .any(|word| word.starts_with(&weight) || word == pool)
}

fn check(path: &Path, as_json: bool) -> Result<(), CliError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|mut f| f.read_to_string(&mut text)),
    };
    read.map_err(|e| CliError::file(path, e))?;
    let graph: Graph = parse(&text)?;
    verify(&graph)?;
    let (nodes, leaves) = (graph.nodes.len(), graph.leaves.len());
    let (inputs, results) = (graph.inputs.len(), graph.results.len());
    if as_json {
        println!(
            "{}",
            json!({"graph": graph.name, "nodes": nodes, "leaves": leaves, "inputs": inputs, "results": results})
        );
    } else {
        println!(
            "graph {}: {nodes} nodes, {leaves} leaves, {inputs} inputs, {results} results: verified",
            graph.name
        );
    }
    Ok(())
}
