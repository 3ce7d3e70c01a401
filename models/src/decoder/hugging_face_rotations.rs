//! What a `config.json` says of rotations, and back. Since version 5 of `transformers` all of it is in
//! `rope_parameters`; older files have `rope_theta` and `rope_scaling`.

use serde_json::{Value, json};

use super::config::DecoderConfig;
use super::families::Kind;
use super::rope_scaling::{RopeAdjustments, RopeScaling, longrope_attention_factor, yarn_attention_factor};
use crate::config_fields::Fields;

/// A field and what it says, if it is there.
type Said<'a> = (&'a str, Option<f64>);

/// The one value that several fields have; an error where two differ, of which readers do not agree which one counts.
pub(super) fn agreed(said: &[Said<'_>]) -> Result<Option<f64>, String> {
    let mut there = said.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let Some((first, value)) = there.next() else { return Ok(None) };
    match there.find(|(_, other)| *other != value) {
        Some((name, other)) => Err(format!("{first} is {value} and {name} is {other}, expected the same")),
        None => Ok(Some(value)),
    }
}

/// Whether all that an older `rope_scaling` says is in `rope_parameters`.
fn agree(own: &Value, older: &Value) -> bool {
    let said = |name: &str| own.get(if name == "type" { "rope_type" } else { name });
    older.as_object().is_some_and(|older| older.iter().all(|(name, value)| said(name) == Some(value)))
}

/// The object of the newer form and of the older one, of which at most one is there, or both say the same.
fn one_of<'a>(own: Option<&'a Value>, older: Option<&'a Value>) -> Result<Option<&'a Value>, String> {
    if let (Some(own), Some(older)) = (own, older)
        && !agree(own, older)
    {
        return Err(format!("rope_parameters is {own} and rope_scaling is {older}, expected one of them, or the same"));
    }
    Ok(own.or(older))
}

/// The share of a head that a type rotates where a file does not say it, of types that may rotate a part.
fn usual_share(kind: Kind) -> Option<f64> {
    match kind {
        Kind::NeoX | Kind::StableLm => Some(0.25),
        Kind::Phi => Some(0.5),
        Kind::Phi3 => Some(1.0),
        _ => None,
    }
}

/// Reads base, share and scaling.
pub(super) fn rotations(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    if kind == Kind::Opt {
        return Ok(());
    }
    let nothing = json!({});
    let object = |name| fields.read(name, "an object with rope_type", |value| value.is_object().then_some(value));
    let (own, older) = (object("rope_parameters")?, object("rope_scaling")?);
    if kind == Kind::Gemma3 {
        return rotations_by_layer((own, older), fields, config);
    }
    let rope = Fields::of(one_of(own, older)?.unwrap_or(&nothing));
    let mut bases =
        vec![("rope_theta of the rotations", rope.number("rope_theta")?), ("rope_theta", fields.number("rope_theta")?)];
    let mut shares = vec![
        ("partial_rotary_factor of the rotations", rope.number("partial_rotary_factor")?),
        ("partial_rotary_factor", fields.number("partial_rotary_factor")?),
    ];
    if kind == Kind::NeoX {
        bases.push(("rotary_emb_base", fields.number("rotary_emb_base")?));
        shares.push(("rotary_pct", fields.number("rotary_pct")?));
    }
    let usual_base = match kind {
        Kind::Mixtral => 1e6,
        Kind::SmolLm3 => 2e6,
        _ => 10_000.0,
    };
    config.rope_base = agreed(&bases)?.unwrap_or(usual_base);
    let usual = usual_share(kind);
    config.rotary_percentage = agreed(&shares)?.or(usual).unwrap_or(1.0);
    if usual.is_none() && config.rotary_percentage != 1.0 {
        let share = config.rotary_percentage;
        return Err(format!("partial_rotary_factor is {share}, which is not supported, expected 1"));
    }
    scaling(kind, (&rope, fields), config)
}

/// The two kinds of rotations of a Gemma 3: those of the layers without a window are the model's own.
fn rotations_by_layer(
    (own, older): (Option<&Value>, Option<&Value>),
    fields: &Fields<'_>,
    config: &mut DecoderConfig,
) -> Result<(), String> {
    let nothing = json!({});
    let both = Fields::of(own.unwrap_or(&nothing));
    let object = |name| both.read(name, "an object with rope_type", |value| value.is_object().then_some(value));
    let (full, sliding) = (object("full_attention")?, object("sliding_attention")?);
    both.end("rope_parameters of a gemma3_text", &[])?;
    let full = Fields::of(one_of(full, older)?.unwrap_or(&nothing));
    let sliding = Fields::of(sliding.unwrap_or(&nothing));
    let of_full = ("rope_theta of full_attention", full.number("rope_theta")?);
    let of_sliding = ("rope_theta of sliding_attention", sliding.number("rope_theta")?);
    let base = agreed(&[of_full, ("rope_theta", fields.number("rope_theta")?)])?;
    let local = agreed(&[of_sliding, ("rope_local_base_freq", fields.number("rope_local_base_freq")?)])?;
    config.rope_base = base.unwrap_or(1e6);
    config.rope_local_base_freq = Some(local.unwrap_or(10_000.0));
    config.rotary_percentage = 1.0;
    sliding.must_be("rope_type", &[json!("default")])?;
    sliding.must_be("type", &[json!("default")])?;
    sliding.end("a rotation of sliding_attention", &[])?;
    scaling(Kind::Gemma3, (&full, fields), config)
}

/// Reads what makes rotations slower, of the object of the rotations and of the file around it.
fn scaling(kind: Kind, (rope, fields): (&Fields<'_>, &Fields<'_>), config: &mut DecoderConfig) -> Result<(), String> {
    let need = |name: &'static str| rope.number(name)?.ok_or_else(|| format!("{name} of the rotations is missing"));
    let (of_rope, older) = (rope.text("rope_type")?, rope.text("type")?);
    if let (Some(of_rope), Some(older)) = (of_rope, older)
        && of_rope != older
    {
        return Err(format!("rope_type is '{of_rope}' and type is '{older}', expected one of them, or the same"));
    }
    (config.rope_adjustments, config.rope_scaling) = (None, None);
    let context = config.block_size;
    let supported =
        if kind == Kind::Phi3 { "default or longrope" } else { "default, linear, llama3, yarn, dynamic or longrope" };
    match of_rope.or(older).unwrap_or("default") {
        "default" => {}
        "longrope" => config.rope_scaling = Some(longrope(kind, (rope, fields), context)?),
        // The first files of Phi 3 call it so.
        "su" if kind == Kind::Phi3 => config.rope_scaling = Some(longrope(kind, (rope, fields), context)?),
        "linear" if kind != Kind::Phi3 => {
            config.rope_adjustments = Some(RopeAdjustments {
                factor: need("factor")?,
                low_freq_factor: None,
                high_freq_factor: None,
                original_max_seq_len: None,
            });
        }
        "llama3" if kind != Kind::Phi3 => {
            config.rope_adjustments = Some(RopeAdjustments {
                factor: need("factor")?,
                low_freq_factor: Some(need("low_freq_factor")?),
                high_freq_factor: Some(need("high_freq_factor")?),
                original_max_seq_len: Some(rope.size("original_max_position_embeddings")?),
            });
        }
        "yarn" if kind != Kind::Phi3 => {
            config.rope_scaling = Some(yarn(rope, context)?);
            // Files say the context of the first training, or the one that the scaling is for.
            let reach = config.rope_scaling.as_ref().and_then(RopeScaling::reach);
            config.block_size = context.max(reach.unwrap_or(0));
        }
        "dynamic" if kind != Kind::Phi3 => {
            let scaling = RopeScaling::Dynamic { factor: need("factor")?, original_max_seq_len: context };
            // The base grows beyond the context of the first training, which is the one that the file says.
            config.block_size = scaling.reach().unwrap_or(context);
            config.rope_scaling = Some(scaling);
        }
        other => return Err(format!("rope_type is '{other}', which is not supported, expected {supported}")),
    }
    rope.end("a rotation", &[])
}

fn yarn(rope: &Fields<'_>, context: usize) -> Result<RopeScaling, String> {
    let original = rope.whole("original_max_position_embeddings")?.unwrap_or(context);
    let given = rope.number("factor")?;
    let factor = given.ok_or("factor of the rotations is missing")?;
    let attention_factor = match rope.number("attention_factor")? {
        Some(factor) => factor,
        // Both or none count. Beside an attention_factor they do not, and are fields that nothing here has.
        None => match (rope.number("mscale")?, rope.number("mscale_all_dim")?) {
            (Some(own), Some(all)) if own != 0.0 && all != 0.0 => {
                yarn_attention_factor(factor, own) / yarn_attention_factor(factor, all)
            }
            (None, None) => yarn_attention_factor(factor, 1.0),
            (own, all) => {
                return Err(format!("mscale is {own:?} and mscale_all_dim is {all:?}, expected both, and not 0"));
            }
        },
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_max_seq_len: original,
        beta_fast: rope.number("beta_fast")?.unwrap_or(32.0),
        beta_slow: rope.number("beta_slow")?.unwrap_or(1.0),
        truncate: rope.flag("truncate", true)?,
        attention_factor,
    })
}

fn longrope(kind: Kind, (rope, fields): (&Fields<'_>, &Fields<'_>), context: usize) -> Result<RopeScaling, String> {
    let factors = |name: &'static str| {
        let all = rope.read(name, "a list of numbers", |value| {
            value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()
        })?;
        all.ok_or_else(|| format!("{name} of the rotations is missing"))
    };
    let own = rope.whole("original_max_position_embeddings")?;
    let original = match kind {
        // The field beside the rotations counts, which has a usual value.
        Kind::Phi3 => {
            let beside = fields.whole("original_max_position_embeddings")?.unwrap_or(4096);
            if let Some(own) = own.filter(|own| *own != beside) {
                return Err(format!(
                    "original_max_position_embeddings of the rotations is {own} and that of the file is {beside}, \
                     expected the same"
                ));
            }
            beside
        }
        _ => own.unwrap_or(context),
    };
    let attention_factor = match rope.number("attention_factor")? {
        Some(factor) => factor,
        None => {
            let factor = rope.number("factor")?.unwrap_or(context as f64 / original as f64);
            longrope_attention_factor(factor, original)
        }
    };
    let (short_factor, long_factor) = (factors("short_factor")?, factors("long_factor")?);
    Ok(RopeScaling::Longrope { original_max_seq_len: original, short_factor, long_factor, attention_factor })
}

/// What a file of a type says of a configuration's rotations, with the context that belongs to it; none of an OPT's.
/// `adjustments` are those of the whole model in one number.
pub(super) fn written(
    kind: Kind,
    config: &DecoderConfig,
    adjustments: Option<RopeAdjustments>,
) -> Option<(Value, usize)> {
    let mut rope = json!({"rope_type": "default", "rope_theta": config.rope_base});
    let mut context = config.block_size;
    if let Some(RopeAdjustments { factor, low_freq_factor, high_freq_factor, original_max_seq_len }) = adjustments {
        (rope["factor"], rope["rope_type"]) = (json!(factor), json!("linear"));
        if let Some(length) = original_max_seq_len {
            rope["rope_type"] = json!("llama3");
            (rope["low_freq_factor"], rope["high_freq_factor"]) = (json!(low_freq_factor), json!(high_freq_factor));
            rope["original_max_position_embeddings"] = json!(length);
        }
    }
    match &config.rope_scaling {
        None => {}
        Some(RopeScaling::Yarn { factor, original_max_seq_len, beta_fast, beta_slow, truncate, attention_factor }) => {
            (rope["factor"], rope["rope_type"]) = (json!(factor), json!("yarn"));
            rope["original_max_position_embeddings"] = json!(original_max_seq_len);
            (rope["beta_fast"], rope["beta_slow"]) = (json!(beta_fast), json!(beta_slow));
            (rope["truncate"], rope["attention_factor"]) = (json!(truncate), json!(attention_factor));
        }
        Some(RopeScaling::Dynamic { factor, original_max_seq_len }) => {
            (rope["factor"], rope["rope_type"]) = (json!(factor), json!("dynamic"));
            context = *original_max_seq_len;
        }
        Some(RopeScaling::Longrope { original_max_seq_len, short_factor, long_factor, attention_factor }) => {
            rope["rope_type"] = json!("longrope");
            rope["original_max_position_embeddings"] = json!(original_max_seq_len);
            (rope["short_factor"], rope["long_factor"]) = (json!(short_factor), json!(long_factor));
            rope["attention_factor"] = json!(attention_factor);
        }
    }
    match kind {
        Kind::Opt => return None,
        Kind::Gemma3 => {
            let sliding = json!({"rope_type": "default", "rope_theta": config.rope_local_base_freq});
            rope = json!({"full_attention": rope, "sliding_attention": sliding});
        }
        _ if usual_share(kind).is_some() => rope["partial_rotary_factor"] = json!(config.rotary_percentage),
        _ => {}
    }
    Some((rope, context))
}
