use super::*;
use crate::config::GptConfig;
use crate::train::initial_parameters;

fn config() -> GptConfig {
    GptConfig { vocabulary: 256, context: 8, layers: 1, heads: 1, channels: 8, ..GptConfig::GPT2 }
}

/// Continuations by a small random model whose logits are `scale` times as large, and what was shown of each.
fn continued(scale: f32, request: &Request) -> Result<(Vec<Continuation>, Vec<String>)> {
    let mut params = initial_parameters(&config(), 3)?;
    *params.get_mut("ln_f.weight").unwrap() = Array::new([8], &[scale; 8])?;
    let mut shown = vec![String::new(); request.prompts.len()];
    let mut show = |row: usize, piece: &str| shown[row] += piece;
    let texts = generate(&config(), &Tokenizer::bytes(), &params, request, &Options::default(), &mut show)?;
    Ok((texts, shown))
}

fn sample_text(scale: f32, temperature: f64, top_k: Option<usize>) -> Result<String> {
    let sampling = Sampling { temperature, top_k, seed: 1, ..Sampling::default() };
    let (texts, shown) = continued(scale, &Request::new("abc", 12, sampling))?;
    assert_eq!((texts[0].text.as_str(), texts[0].tokens.len(), &texts[0].end), (shown[0].as_str(), 12, &End::Count));
    Ok(texts[0].text.clone())
}

#[test]
fn low_temperatures_tend_to_the_most_probable_token() {
    let greedy = sample_text(1.0, 0.0, None).unwrap();
    assert!(!greedy.is_empty() && !greedy.contains('\0'), "{greedy:?}");
    for temperature in [5e-324, 1e-46, 1e-45, 1e-40, 1.1e-38, 1.3e-38, 1e-30, 1e-12] {
        for top_k in [None, Some(5)] {
            assert_eq!(sample_text(1.0, temperature, top_k).unwrap(), greedy, "{temperature:e} {top_k:?}");
        }
    }
    assert_ne!(sample_text(1.0, 1e38, None).unwrap(), greedy);
    // Of logits that are infinite once they are divided.
    for temperature in [1.3e-38, 1e-36, 1e-30] {
        assert_eq!(sample_text(1e6, temperature, None).unwrap(), greedy, "{temperature:e}");
    }
}

#[test]
fn temperatures_that_f32_does_not_hold_are_refused() {
    for temperature in [1e39, f64::INFINITY, f64::NAN, -1.0, -1e-50] {
        let error = sample_text(1.0, temperature, None).unwrap_err().to_string();
        assert!(error.contains("argument 'temperature'") && error.contains("expected a number from 0 to 3.4028235e38"));
    }
}

#[test]
fn prompts_of_a_batch_are_continued_as_each_alone() {
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    // The longest is longer than the context; the second one is the end of it.
    let prompts = ["a", "cdefghij", "", "abcdefghij"];
    let mut request = Request::new("", 12, greedy);
    request.prompts = prompts.map(str::to_owned).to_vec();
    let (texts, shown) = continued(1.0, &request).unwrap();
    for ((prompt, text), shown) in prompts.into_iter().zip(&texts).zip(shown) {
        let (alone, _) = continued(1.0, &Request::new(prompt, 12, greedy)).unwrap();
        assert_eq!((&alone[0], &shown), (text, &text.text), "{prompt:?}");
    }
    assert_eq!(texts[1], texts[3]);
    let drawn = Request { sampling: Sampling { temperature: 2.0, ..greedy }, ..request.clone() };
    let (texts, _) = continued(1.0, &Request { prompts: vec!["abc".into(); 2], ..drawn }).unwrap();
    assert_ne!(texts[0], texts[1], "rows draw different numbers");
    let none = Request { prompts: Vec::new(), ..request };
    assert!(continued(1.0, &none).unwrap_err().to_string().contains("argument 'prompts': are none"));
}

#[test]
fn tokens_and_texts_end_a_text() {
    let drawn = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    let request = Request::new("abc", 40, drawn);
    let whole = continued(1.0, &request).unwrap().0.remove(0);
    let token = whole.tokens[20];
    let first = whole.tokens.iter().position(|other| *other == token).unwrap();
    let (texts, shown) = continued(1.0, &Request { stop_tokens: vec![token], ..request.clone() }).unwrap();
    assert_eq!((&texts[0].end, &texts[0].tokens[..]), (&End::Token(token), &whole.tokens[..=first]));
    let before = Tokenizer::bytes().decode(&whole.tokens[..first]).unwrap();
    assert_eq!((&texts[0].text, &shown[0]), (&before, &before));
    let middle = whole.text.char_indices().nth(20).unwrap().0;
    let stop: String = whole.text[middle..].chars().take(2).collect();
    let (texts, shown) =
        continued(1.0, &Request { stop_texts: vec!["no such text".into(), stop.clone()], ..request }).unwrap();
    assert_eq!(texts[0].end, End::Text(stop.clone()));
    assert_eq!(
        (texts[0].text.as_str(), shown[0].as_str()),
        (whole.text.split(&stop).next().unwrap(), texts[0].text.as_str())
    );
    assert!(texts[0].tokens.len() < 40);
}

#[test]
fn a_penalty_keeps_tokens_from_coming_again() {
    let penalty = Sampling { temperature: 0.0, repetition_penalty: 1e6, ..Sampling::default() };
    let mut tokens = continued(50.0, &Request::new("abc", 30, penalty)).unwrap().0.remove(0).tokens;
    tokens.extend([97, 98, 99]);
    tokens.sort_unstable();
    let count = tokens.len();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "a token came again: {tokens:?}");
}

/// A folder of Hugging Face, and what `transformers` generates with it: `tests/golden/tokenizer_files.py`.
#[test]
fn a_folder_of_hugging_face_is_continued_as_transformers_does() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files");
    let expected = std::fs::read(golden.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&expected).unwrap();
    let loaded = crate::weight_files::load(&golden.join("llama"), None).unwrap();
    let tokenizer = loaded.tokenizer().unwrap();
    assert_eq!((tokenizer.begin(), tokenizer.ends()), (&[1][..], &[2, 0][..]));
    let (config, params) = (loaded.weights.config(), loaded.weights.params().unwrap());
    let prompts: Vec<String> = serde_json::from_value(expected["llama"]["prompts"].clone()).unwrap();
    let continuations: Vec<Vec<u32>> = serde_json::from_value(expected["llama"]["continuations"].clone()).unwrap();
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    for cache in [None, Some(0), Some(50)] {
        let request = Request { prompts: prompts.clone(), cache, ..Request::new("", 24, greedy) };
        let mut show = |_: usize, _: &str| ();
        let found = generate(config, &tokenizer, &params, &request, &Options::default(), &mut show).unwrap();
        for (found, expected) in found.iter().zip(&continuations) {
            assert_eq!((&found.tokens, &found.end), (expected, &End::Count), "{cache:?}");
        }
    }
}

#[test]
fn a_full_cache_ends_a_text() {
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    let whole = Request { cache: Some(0), ..Request::new("abc", 5, greedy) };
    let (without, _) = continued(1.0, &whole).unwrap();
    let prompts = vec!["abc".to_owned(), "a".to_owned()];
    let with =
        |cache: usize, count: usize| Request { cache: Some(cache), count, prompts: prompts.clone(), ..whole.clone() };
    let (texts, _) = continued(1.0, &with(8, 5)).unwrap();
    assert_eq!(texts[0], without[0]);
    // Three of the prompt and two more have a place, the third comes of the last of these.
    let (texts, _) = continued(1.0, &with(5, 5)).unwrap();
    assert_eq!((&texts[0].tokens[..], &texts[0].end), (&without[0].tokens[..3], &End::CacheFull(5)));
    assert_eq!((texts[1].tokens.len(), &texts[1].end), (5, &End::Count));
    let (texts, _) = continued(1.0, &with(5, 3)).unwrap();
    assert_eq!(texts[0].end, End::Count);
    let message = continued(1.0, &with(2, 5)).unwrap_err().to_string();
    assert!(message.contains("hold one of 3 tokens (text 1), the cache has 2"), "{message}");
    let message = continued(1.0, &with(9, 5)).unwrap_err().to_string();
    assert!(message.contains("argument 'cache': has 9 positions, the model's context 8"), "{message}");
}
