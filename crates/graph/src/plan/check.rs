//! Checks a plan, whether it was just compiled or read from a file, so that running it never has to ask:
//!
//! 1. The version is this one's, names are unique, every index names what exists.
//! 2. Kernels' numbers are in range, their programs' operands exist.
//! 3. A weight's recipe gives its rows, its layout holds its storage, and its bytes are those of the layout or more.
//! 4. A launch binds what its kernel's argument list says, each large enough for every number of rows: types, widths,
//!    layouts, pools. One more argument, a scratch, may follow: the workspace.
//! 5. Weights and inputs are only read. A launch binds no buffer twice if it writes it (pools apart, which are written in
//!    place). A scratch is written before it is read, a result before it is read unless it is fed back, and every result
//!    by every variant.
//! 6. Guards are ranges of symbols that a step is given. What is fed back has the type of the input it stands for.

use std::collections::HashSet;

use ingle_quant::{ElementType, PackedLayout, Storage};

use super::arguments::{Access, Needs};
use super::{Buffer, Entry, Launch, PLAN_VERSION, Plan, Port, Rows, Size, State, Variant, Weight};
use crate::kernel::WeightLayout;
use crate::ops::KV_BLOCK;
use crate::{Dim, GraphError, Symbol};

/// What was expected and what was found.
type Wrong = (String, String);

/// Checks `plan`.
pub fn check(plan: &Plan) -> Result<(), GraphError> {
    if plan.version != PLAN_VERSION {
        let wrong = (PLAN_VERSION.to_string(), plan.version.to_string());
        return Err(at("version")(wrong));
    }
    names(plan)?;
    for weight in &plan.weights {
        check_weight(weight).map_err(at(format!("weight {}", weight.name)))?;
    }
    for (i, kernel) in plan.kernels.iter().enumerate() {
        let name = format!("kernel {i} ({})", kernel.spec.name());
        kernel.spec.check().map_err(at(name))?;
    }
    for entry in &plan.entries {
        check_fed(plan, entry).map_err(at(format!("{}: fed", entry.name)))?;
        for (v, variant) in entry.variants.iter().enumerate() {
            let place = format!("{} variant {v}", entry.name);
            check_guards(variant).map_err(at(format!("{place}: guards")))?;
            check_variant(plan, entry, variant, &place)?;
        }
    }
    Ok(())
}

fn at(field: impl Into<String>) -> impl FnOnce(Wrong) -> GraphError {
    let field = field.into();
    |(expected, found)| GraphError::Plan {
        field,
        expected,
        found,
    }
}

fn wrong<T>(expected: impl Into<String>, found: impl Into<String>) -> Result<T, Wrong> {
    Err((expected.into(), found.into()))
}

fn names(plan: &Plan) -> Result<(), GraphError> {
    let mut seen = HashSet::new();
    let weights = plan.weights.iter().map(|w| ("weight", &w.name));
    let states = plan.states.iter().map(|s| ("state", &s.name));
    let inputs = plan.inputs.iter().map(|p| ("input", &p.name));
    let results = plan.results.iter().map(|p| ("result", &p.name));
    let entries = plan.entries.iter().map(|e| ("entry", &e.name));
    let all = weights
        .chain(states)
        .chain(inputs)
        .chain(results)
        .chain(entries);
    for (kind, name) in all {
        if !seen.insert((kind, name)) {
            return Err(at(kind)(("unique names".into(), format!("two {name:?}"))));
        }
    }
    Ok(())
}

fn check_weight(weight: &Weight) -> Result<(), Wrong> {
    if let Err(e) = weight.recipe.check() {
        return wrong("a well-formed recipe", e.to_string());
    }
    if weight.recipe.rows() != weight.rows {
        let found = format!("a recipe of {}", weight.recipe.rows());
        return wrong(format!("{} rows", weight.rows), found);
    }
    let holds = match (weight.layout, weight.storage) {
        (WeightLayout::Dense(_), _) => true,
        (WeightLayout::Packed(packed), Storage::Quant(scheme)) => {
            let request = ingle_quant::LayoutRequest {
                rows: packed.rows,
                placement: packed.placement,
            };
            PackedLayout::for_scheme(&scheme, request) == Some(packed)
        }
        (WeightLayout::Packed(_), Storage::Element(_)) => false,
    };
    if !holds {
        let expected = format!("a layout of {:?}", weight.storage);
        return wrong(expected, format!("{:?}", weight.layout));
    }
    match layout_bytes(weight.layout, weight.rows, weight.k) {
        Some(bytes) if bytes <= weight.bytes => Ok(()),
        bytes => wrong(
            format!("at least {bytes:?} bytes"),
            weight.bytes.to_string(),
        ),
    }
}

/// Bytes of a matrix in this layout; `None` on overflow or if its rows are not whole groups.
fn layout_bytes(layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
    let bytes = match layout {
        WeightLayout::Dense(element) => rows.checked_mul(k)?.checked_mul(element.bytes())?,
        WeightLayout::Packed(packed) => packed.bytes(rows, k).ok()?,
    };
    u64::try_from(bytes).ok()
}

fn check_fed(plan: &Plan, entry: &Entry) -> Result<(), Wrong> {
    let Some((input, result)) = entry.fed else {
        return Ok(());
    };
    let ports = (
        plan.inputs.get(input as usize),
        plan.results.get(result as usize),
    );
    let (Some(from), Some(to)) = ports else {
        return wrong("an input and a result", format!("{input}, {result}"));
    };
    if from.element != to.element || from.shape.get(1..) != to.shape.get(1..) {
        return wrong(
            format!("{:?}{:?}", from.element, from.shape),
            format!("{:?}{:?}", to.element, to.shape),
        );
    }
    Ok(())
}

fn check_guards(variant: &Variant) -> Result<(), Wrong> {
    for (i, guard) in variant.guards.iter().enumerate() {
        let name = guard.symbol.name();
        if guard.low > guard.high || guard.symbol == Symbol::Context {
            let found = format!("{name} {}..={}", guard.low, guard.high);
            return wrong("a range of a given symbol", found);
        }
        if variant.guards[..i].iter().any(|g| g.symbol == guard.symbol) {
            return wrong("one range for each symbol", format!("two for {name}"));
        }
    }
    Ok(())
}

fn check_variant(
    plan: &Plan,
    entry: &Entry,
    variant: &Variant,
    place: &str,
) -> Result<(), GraphError> {
    let mut written: HashSet<Buffer> = entry
        .fed
        .map(|(_, result)| Buffer::Result(result))
        .into_iter()
        .collect();
    for (l, launch) in variant.launches.iter().enumerate() {
        let field = || format!("{place} launch {l} ({})", launch.label);
        let writes = check_launch(plan, entry, launch, &written).map_err(at(field()))?;
        written.extend(writes);
    }
    written.clear();
    for launch in &variant.launches {
        written.extend(launch.arguments.iter().copied());
    }
    match (0..plan.results.len()).find(|&r| !written.contains(&Buffer::Result(r as u32))) {
        Some(r) => {
            let expected = format!("a launch that writes {}", plan.results[r].name);
            Err(at(place)((expected, "none".into())))
        }
        None => Ok(()),
    }
}

/// Checks one launch, given what was written before it, and gives what it writes.
fn check_launch(
    plan: &Plan,
    entry: &Entry,
    launch: &Launch,
    written: &HashSet<Buffer>,
) -> Result<Vec<Buffer>, Wrong> {
    let Some(kernel) = plan.kernels.get(launch.kernel as usize) else {
        let expected = format!("a kernel below {}", plan.kernels.len());
        return wrong(expected, launch.kernel.to_string());
    };
    let arguments = kernel.spec.arguments();
    let (count, found) = (arguments.len(), launch.arguments.len());
    if found != count && found != count + 1 {
        return wrong(format!("{count} arguments"), found.to_string());
    }
    let mut writes = Vec::new();
    for (i, &buffer) in launch.arguments.iter().enumerate() {
        exists(plan, buffer)?;
        let access = match arguments.get(i) {
            Some(&(access, needs)) => {
                provides(plan, entry, buffer, needs, launch.rows)
                    .map_err(|(expected, found)| (format!("argument {i}: {expected}"), found))?;
                access
            }
            None if matches!(buffer, Buffer::Scratch(_)) => Access::Write,
            None => return wrong("a scratch as workspace", format!("{buffer:?}")),
        };
        let computed = matches!(buffer, Buffer::Scratch(_) | Buffer::Result(_));
        match access {
            Access::Read if computed && !written.contains(&buffer) => {
                return wrong("a buffer that was written", format!("{buffer:?}"));
            }
            Access::Read => {}
            Access::Write if !computed => {
                return wrong("a scratch or a result to write", format!("{buffer:?}"));
            }
            Access::Write | Access::Update => writes.push(buffer),
        }
    }
    let bound = |b: &Buffer| launch.arguments.iter().filter(|a| *a == b).count();
    match writes.iter().find(|b| bound(b) > 1) {
        Some(twice) => wrong(
            "no buffer written and bound again",
            format!("{twice:?} twice"),
        ),
        None => Ok(writes),
    }
}

fn exists(plan: &Plan, buffer: Buffer) -> Result<(), Wrong> {
    let (index, count) = match buffer {
        Buffer::Weight(i) => (i, plan.weights.len()),
        Buffer::State(i) => (i, plan.states.len()),
        Buffer::Input(i) => (i, plan.inputs.len()),
        Buffer::Result(i) => (i, plan.results.len()),
        Buffer::Scratch(i) => (i, plan.scratch.len()),
    };
    if (index as usize) < count {
        return Ok(());
    }
    wrong(format!("one of {count}"), format!("{buffer:?}"))
}

/// Checks that `buffer`, which exists, holds what an argument needs for any number of rows.
fn provides(
    plan: &Plan,
    entry: &Entry,
    buffer: Buffer,
    needs: Needs,
    rows: Rows,
) -> Result<(), Wrong> {
    let ok = match (needs, buffer) {
        (Needs::Matrix { layout, rows, k }, Buffer::Weight(w)) => {
            let w = &plan.weights[w as usize];
            (w.layout, w.rows, w.k) == (layout, rows, k)
        }
        (Needs::Pool { .. }, Buffer::State(s)) => is_pool(&plan.states[s as usize], needs),
        (Needs::Table, Buffer::Input(i)) => {
            let port = &plan.inputs[i as usize];
            port.element == ElementType::I32 && port.shape.len() == 2
        }
        (Needs::PerRow(element, width), _) => {
            let needed = (element.bytes() as u64).checked_mul(width as u64);
            let needed = needed.and_then(|per| match rows {
                Rows::Const(n) => per.checked_mul(n as u64).map(Size::constant),
                Rows::Sym(symbol) => Some(Size {
                    constant: 0,
                    per,
                    symbol,
                }),
            });
            let sizes = sizes(plan, entry, buffer, Some(element));
            needed.is_some_and(|n| sizes.iter().any(|s| covers(*s, n)))
        }
        (Needs::Vector(n), _) => {
            let needed = (n as u64).checked_mul(4).map(Size::constant);
            let sizes = sizes(plan, entry, buffer, None);
            needed.is_some_and(|n| sizes.iter().any(|s| covers(*s, n)))
        }
        (Needs::AnyRows(width), _) => {
            let row = (width as u64).saturating_mul(4);
            let sizes = sizes(plan, entry, buffer, None);
            sizes.iter().any(|s| s.per.max(s.constant) >= row)
        }
        _ => false,
    };
    if ok {
        return Ok(());
    }
    wrong(
        format!("{needs:?} for {rows:?} rows"),
        describe(plan, buffer),
    )
}

fn is_pool(state: &State, needs: Needs) -> bool {
    let Needs::Pool {
        element,
        kv_heads,
        head_dim,
    } = needs
    else {
        return false;
    };
    let rest = [2, kv_heads, KV_BLOCK, head_dim].map(Dim::Const);
    state.element == element && state.shape.get(1..) == Some(&rest[..])
}

/// The sizes that a buffer of plain elements may have: a result that is fed back also has its input's.
fn sizes(plan: &Plan, entry: &Entry, buffer: Buffer, element: Option<ElementType>) -> Vec<Size> {
    let element = element.unwrap_or(ElementType::F32);
    let port = |p: &Port| port_size(p).filter(|_| p.element == element);
    match buffer {
        Buffer::Weight(w) => {
            let w = &plan.weights[w as usize];
            let plain = w.layout == WeightLayout::Dense(element);
            let bytes = layout_bytes(w.layout, w.rows, w.k).filter(|_| plain);
            bytes.map(Size::constant).into_iter().collect()
        }
        Buffer::State(_) => vec![],
        Buffer::Input(i) => port(&plan.inputs[i as usize]).into_iter().collect(),
        Buffer::Scratch(s) => vec![plan.scratch[s as usize].bytes],
        Buffer::Result(r) => {
            let mut all: Vec<Size> = port(&plan.results[r as usize]).into_iter().collect();
            if let Some((input, result)) = entry.fed
                && result == r
            {
                all.extend(plan.inputs.get(input as usize).and_then(port));
            }
            all
        }
    }
}

/// Bytes of a port as a function of its first dimension; `None` if they are not, or overflow.
fn port_size(port: &Port) -> Option<Size> {
    let first = port.shape.first().copied().unwrap_or(Dim::Const(1));
    let rest = port.shape.get(1..).unwrap_or_default();
    let per = rest.iter().try_fold(port.element.bytes() as u64, |n, d| {
        n.checked_mul(d.constant()? as u64)
    })?;
    match first {
        Dim::Const(n) => per.checked_mul(n as u64).map(Size::constant),
        Dim::Sym(symbol) => Some(Size {
            constant: 0,
            per,
            symbol,
        }),
    }
}

fn covers(have: Size, need: Size) -> bool {
    let per = need.per == 0 || (have.symbol == need.symbol && have.per >= need.per);
    per && have.constant >= need.constant
}

fn describe(plan: &Plan, buffer: Buffer) -> String {
    match buffer {
        Buffer::Weight(w) => {
            let w = &plan.weights[w as usize];
            format!("@{} [{}, {}] {:?}", w.name, w.rows, w.k, w.layout)
        }
        Buffer::State(s) => format!("{:?}", plan.states[s as usize]),
        Buffer::Input(i) => format!("input {:?}", plan.inputs[i as usize]),
        Buffer::Result(r) => format!("result {:?}", plan.results[r as usize]),
        Buffer::Scratch(s) => format!("scratch of {:?}", plan.scratch[s as usize].bytes),
    }
}
