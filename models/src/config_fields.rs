//! The keys of a `config.json`: each is read, or has no effect on what is computed, or is an error.

use std::cell::RefCell;

use serde_json::{Value, json};

/// Keys that change no result, each with the reason. Those of one type of models are listed with the type.
pub(crate) const HARMLESS: [(&str, &str); 84] = [
    ("architectures", "the class that saved the file; its tensors say which heads it has"),
    ("transformers_version", "which program wrote the file"),
    ("_name_or_path", "which program wrote the file"),
    ("_commit_hash", "which program wrote the file"),
    ("_attn_implementation", "which kernel computed attention"),
    ("_attn_implementation_autoset", "which kernel computed attention"),
    ("_experts_implementation", "which kernel computed experts"),
    ("dtype", "the tensors have their types"),
    ("torch_dtype", "the tensors have their types"),
    ("use_cache", "whether keys and values are kept, which changes no result"),
    ("initializer_range", "initial weights, which were replaced"),
    ("initializer_factor", "initial weights, which were replaced"),
    ("gradient_checkpointing", "memory of training, which changes no result"),
    ("attention_dropout", "training alone; dropout is an option of a run"),
    ("hidden_dropout", "training alone; dropout is an option of a run"),
    ("classifier_dropout", "a head that is not computed here"),
    ("router_aux_loss_coef", "a loss of training that is added to that of the tokens"),
    ("output_router_logits", "which results are given beside the logits"),
    ("output_attentions", "which results are given beside the logits"),
    ("output_hidden_states", "which results are given beside the logits"),
    ("return_dict", "the form of results"),
    ("return_dict_in_generate", "the form of results"),
    ("output_scores", "the form of results"),
    ("output_past", "the form of results"),
    ("torchscript", "how PyTorch compiles"),
    ("chunk_size_feed_forward", "positions are computed in parts, which changes no result"),
    ("pretraining_tp", "products are computed in parts, which changes no result"),
    ("bos_token_id", "where texts begin: read with the tokenizer"),
    ("eos_token_id", "where texts end: read with the tokenizer"),
    ("pad_token_id", "texts of a batch end by themselves, and are not padded with a token"),
    ("sep_token_id", "no text has a separator"),
    ("decoder_start_token_id", "a model with an encoder"),
    ("tokenizer_class", "the tokenizer's files say what it is"),
    ("prefix", "a text before prompts, which the caller writes"),
    ("finetuning_task", "what the model was trained for"),
    ("task_specific_params", "options of generation by task; those of the command count"),
    ("problem_type", "a head of classification"),
    ("num_labels", "a head of classification"),
    ("_num_labels", "a head of classification"),
    ("id2label", "a head of classification"),
    ("label2id", "a head of classification"),
    ("summary_activation", "a head of classification"),
    ("summary_first_dropout", "a head of classification"),
    ("summary_hidden_size", "a head of classification"),
    ("summary_proj_to_labels", "a head of classification"),
    ("summary_type", "a head of classification"),
    ("summary_use_proj", "a head of classification"),
    ("max_length", "an option of generation; those of the command count"),
    ("min_length", "an option of generation; those of the command count"),
    ("do_sample", "an option of generation; those of the command count"),
    ("early_stopping", "an option of generation; those of the command count"),
    ("num_beams", "an option of generation; those of the command count"),
    ("num_beam_groups", "an option of generation; those of the command count"),
    ("diversity_penalty", "an option of generation; those of the command count"),
    ("temperature", "an option of generation; those of the command count"),
    ("top_k", "an option of generation; those of the command count"),
    ("top_p", "an option of generation; those of the command count"),
    ("typical_p", "an option of generation; those of the command count"),
    ("repetition_penalty", "an option of generation; those of the command count"),
    ("length_penalty", "an option of generation; those of the command count"),
    ("no_repeat_ngram_size", "an option of generation; those of the command count"),
    ("encoder_no_repeat_ngram_size", "an option of generation; those of the command count"),
    ("bad_words_ids", "an option of generation; those of the command count"),
    ("num_return_sequences", "an option of generation; those of the command count"),
    ("remove_invalid_values", "an option of generation; those of the command count"),
    ("exponential_decay_length_penalty", "an option of generation; those of the command count"),
    ("suppress_tokens", "an option of generation; those of the command count"),
    ("begin_suppress_tokens", "an option of generation; those of the command count"),
    ("forced_bos_token_id", "an option of generation; those of the command count"),
    ("forced_eos_token_id", "an option of generation; those of the command count"),
    ("tf_legacy_loss", "a loss of TensorFlow's models"),
    ("use_bfloat16", "the type of TensorFlow's models"),
    ("cross_attention_hidden_size", "a model with an encoder, which add_cross_attention says"),
    ("tie_encoder_decoder", "a model with an encoder, which is_encoder_decoder says"),
    ("is_decoder", "every model here attends to earlier positions alone"),
    ("router_jitter_noise", "noise of training"),
    ("model_type", "read before all others"),
    ("cache_implementation", "how keys and values are kept, which changes no result"),
    ("max_sequence_length", "the context under an older name, which nothing reads"),
    ("neftune_noise_alpha", "noise of training"),
    ("is_llama_config", "which program wrote the file"),
    ("unsloth_version", "which program wrote the file"),
    ("unsloth_fixed", "which program wrote the file"),
    ("transformers.js_config", "how a browser loads the file"),
];

/// The fields of a file, or of an object in it.
pub(crate) struct Fields<'a> {
    value: &'a Value,
    /// Fields that were asked for.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(value: &'a Value) -> Fields<'a> {
        Fields { value, known: RefCell::default() }
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, name: &'static str) -> Option<&'a Value> {
        self.has(name);
        self.value.get(name).filter(|value| !value.is_null())
    }

    /// Whether a field is there, perhaps null.
    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.known.borrow_mut().push(name);
        self.value.get(name).is_some()
    }

    pub(crate) fn read<T>(
        &self,
        name: &'static str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let wrong = |value: &Value| format!("{name} is {value}, expected {what}");
        self.get(name).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    pub(crate) fn whole(&self, name: &'static str) -> Result<Option<usize>, String> {
        self.read(name, "a whole number", |value| value.as_u64().and_then(|value| usize::try_from(value).ok()))
    }

    pub(crate) fn size(&self, name: &'static str) -> Result<usize, String> {
        self.whole(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn number(&self, name: &'static str) -> Result<Option<f64>, String> {
        self.read(name, "a number", Value::as_f64)
    }

    pub(crate) fn flag(&self, name: &'static str, default: bool) -> Result<bool, String> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&'a str>, String> {
        self.read(name, "a text", Value::as_str)
    }

    /// Refuses a field of another value than the one that is computed here.
    pub(crate) fn must_be(&self, name: &'static str, values: &[Value]) -> Result<(), String> {
        match self.get(name) {
            Some(value) if !values.contains(value) => {
                let expected: Vec<String> = values.iter().map(Value::to_string).collect();
                Err(format!("{name} is {value}, which is not supported, expected {}", expected.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses settings that no model here has, and every field that was neither asked for nor is in `harmless`.
    /// A field that is null says nothing.
    pub(crate) fn end(&self, of: &str, harmless: &[(&str, &str)]) -> Result<(), String> {
        if let Some(quantization) = self.get("quantization_config") {
            let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
            return Err(format!(
                "quantization_config is there, of the method '{method}', and such quantized weights are not supported: \
                 take the model in bf16, which `generate --weights int4` rounds as it reads it"
            ));
        }
        if self.get("auto_map").is_some() {
            return Err("auto_map is there: the model computes by code of its own, which is not run here".to_owned());
        }
        self.must_be("is_encoder_decoder", &[json!(false)])?;
        self.must_be("add_cross_attention", &[json!(false)])?;
        self.must_be("pruned_heads", &[json!({})])?;
        let known = self.known.borrow();
        for (name, value) in self.value.as_object().into_iter().flatten() {
            let listed = || harmless.iter().any(|(harmless, _)| harmless == name);
            if !known.contains(&name.as_str()) && !value.is_null() && !listed() {
                let value = value.to_string();
                let shown = value.chars().take(60).collect::<String>();
                return Err(format!(
                    "{name} is {shown}, and {of} has no such field here: what it changes would not be computed; take \
                     the line out of the file if it changes nothing"
                ));
            }
        }
        Ok(())
    }
}
