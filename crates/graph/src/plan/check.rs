//! Checks a plan, whether it was just compiled or read from a file: every index names what exists, so that running it
//! never has to ask.

use super::{Buffer, Launch, PLAN_VERSION, Plan};
use crate::GraphError;

/// Checks `plan`.
pub fn check(plan: &Plan) -> Result<(), GraphError> {
    let fail = |field: String, expected: String, found: String| {
        Err(GraphError::Plan {
            field,
            expected,
            found,
        })
    };
    if plan.version != PLAN_VERSION {
        return fail(
            "version".into(),
            PLAN_VERSION.to_string(),
            plan.version.to_string(),
        );
    }
    for entry in &plan.entries {
        if let Some((input, result)) = entry.fed
            && (input as usize >= plan.inputs.len() || result as usize >= plan.results.len())
        {
            return fail(
                format!("{}: fed", entry.name),
                "an input and a result".into(),
                format!("{input}, {result}"),
            );
        }
        for (v, variant) in entry.variants.iter().enumerate() {
            for (l, launch) in variant.launches.iter().enumerate() {
                launch_exists(plan, launch).or_else(|(expected, found)| {
                    fail(
                        format!("{} variant {v} launch {l}", entry.name),
                        expected,
                        found,
                    )
                })?;
            }
        }
    }
    for kernel in &plan.kernels {
        if let crate::kernel::KernelSpec::Matmul(m) = &kernel.spec
            && !m.epilogue.is_valid()
        {
            return fail(
                "epilogue".into(),
                "operands that exist".into(),
                format!("{:?}", m.epilogue),
            );
        }
    }
    Ok(())
}

fn launch_exists(plan: &Plan, launch: &Launch) -> Result<(), (String, String)> {
    if launch.kernel as usize >= plan.kernels.len() {
        return Err((
            format!("a kernel below {}", plan.kernels.len()),
            launch.kernel.to_string(),
        ));
    }
    for &buffer in &launch.arguments {
        let (index, count) = match buffer {
            Buffer::Weight(i) => (i, plan.weights.len()),
            Buffer::State(i) => (i, plan.states.len()),
            Buffer::Input(i) => (i, plan.inputs.len()),
            Buffer::Result(i) => (i, plan.results.len()),
            Buffer::Scratch(i) => (i, plan.scratch.len()),
        };
        if index as usize >= count {
            return Err((format!("one of {count}"), format!("{buffer:?}")));
        }
    }
    Ok(())
}
