//! What `ops new` writes for a kind of device that does not come with Fulgurite.

/// The device work of a kernel for another kind of device than those that come with Fulgurite, which says itself what
/// it runs.
pub(super) fn other_plan(device: &str, parameters: &str) -> String {
    format!(
        "    // PLACEHOLDER: the device work: fills, copies, and library calls (`plan.library`) with payloads of the
    // kind `{device}`. (An underscore marks an unused argument.)
    fn plan(_plan: &mut Plan, {parameters}) -> Result<()> {{
        todo!(\"{{}}: write the device work at PLACEHOLDER\", file!())
    }}
"
    )
}
