"""An encoder with its loss: cross entropy of masked tokens, and perhaps of the next sentence.

    MODEL = @model.MaskedLanguageModel()

A batch holds `encoder_input_tokens` int32 [B, L] with masks, `encoder_target_tokens` int32 [B, L]
without, `encoder_loss_weights` float32 [B, L], above 0 where a token is to be predicted,
`encoder_segment_ids` int32 [B, L], 0 for padding, and `encoder_positions` int32 [B, L]. BERT also
reads `encoder_type_ids` int32 [B, L] and `next_sentence_label` int32 [B, 1], of the row's first
token, or [B, L], of the first token of each example and -1 elsewhere: 0 where the second sentence
follows the first, 1 where it is random.

Shapes: B batch, L length, P places that are predicted, W words, D emb_dim, V vocab.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x import losses, metrics
from t5x.array_types import Batch, Params
from t5x.optimizers import OptimizerDef

_FEATURES = {"segment_ids": None, "positions": None, "type_ids": None}


class Normalizers(NamedTuple):
    """The divisors of the summed losses of a batch; None divides nothing."""

    tokens: jax.Array | float | None
    sentences: jax.Array | None


@dataclasses.dataclass(eq=False, repr=False)
class MaskedLanguageModel:
    """An encoder trained to predict masked tokens.

    One pass computes logits for a share `predicted_share` of each row's positions. If a row has
    more targets, the batch takes several passes: slower, with the same results.
    """

    module: Any  # `network.Bert` or `network.ModernBert`
    input_vocabulary: Any  # a seqio.Vocabulary; only checked, never called
    # A seqio.Vocabulary; evaluations count words by its `word_starts`, if any.
    output_vocabulary: Any
    optimizer_def: OptimizerDef
    feature_converter_cls: Callable[..., Any] | None = None
    z_loss: float = 0.0  # see `losses.cross_entropy`
    loss_normalizing_factor: Any = "NUM_REAL_TARGET_TOKENS"  # see `losses`
    predicted_share: float = 0.25

    def __post_init__(self):
        losses.normalizing_factor(self.loss_normalizing_factor)

    def get_initial_variables(self, rng: jax.Array, input_shapes: Any, input_types: Any = None):
        """Return the network's variables in Flax's boxes; lengths do not matter."""
        rows, _ = input_shapes["encoder_input_tokens"]
        return self.module.init(rng, jnp.ones((rows, 1), jnp.int32), enable_dropout=False)

    def encode(
        self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None
    ) -> jax.Array:
        """Return the encoded rows [B, L, D], with dropout if there is a key."""
        return self.module.apply(
            {"params": params},
            batch["encoder_input_tokens"],
            **{name: batch.get(f"encoder_{name}") for name in _FEATURES},
            enable_dropout=dropout_rng is not None,
            rngs=None if dropout_rng is None else {"dropout": dropout_rng},
            method="encode",
        )

    def logits(self, params: Params, batch: Batch, dropout_rng: jax.Array | None = None):
        """Return float32 logits [B, L, V] of every place, with dropout if there is a key."""
        encoded = self.encode(params, batch, dropout_rng)
        return self.module.apply({"params": params}, encoded, method="predict")

    def loss_fn(
        self,
        params: Params,
        batch: Batch,
        dropout_rng: jax.Array | None,
        normalizers: Normalizers | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        """Return the normalized loss, and (sum of weights, sums of `metrics`).

        `normalizers` are of the whole batch that this one is a part of. The loss of next sentences,
        where there are labels, is their mean, or their sum if nothing normalizes.
        """
        loss, sums, _ = self._loss_and_hits(params, batch, dropout_rng, normalizers)
        return loss, (sums["weights"], sums)

    def eval_fn(self, params: Params, batch: Batch, dropout_rng: None = None):
        """Return `loss_fn` without dropout, with sums of words if their pieces are known."""
        loss, sums, hits_BL = self._loss_and_hits(params, batch, None, None)
        if hasattr(self.output_vocabulary, "word_starts"):
            sums |= self._word_sums(batch, hits_BL)
        return loss, (sums["weights"], sums)

    def normalizers(self, batch: Batch) -> Normalizers:
        """Return what the losses of tokens and of next sentences are divided by (None: 1)."""
        factor, _ = self._factor_and_weights(batch)
        if factor is None or (labels := batch.get("next_sentence_label")) is None:
            return Normalizers(factor, None)
        return Normalizers(factor, jnp.maximum((labels >= 0).sum().astype(jnp.float32), 1.0))

    def _factor_and_weights(self, batch: Batch):
        names = ("target_tokens", "loss_weights", "segment_ids")
        decoder_batch = {
            f"decoder_{k}": batch[f"encoder_{k}"] for k in names if f"encoder_{k}" in batch
        }
        return losses.normalizing_factor_and_weights(self.loss_normalizing_factor, decoder_batch)

    def _loss_and_hits(self, params, batch, dropout_rng, normalizers):
        """Return the loss, its sums, and which targets with a weight are predicted, bool [B, L]."""
        encoded = self.encode(params, batch, dropout_rng)
        factor, sentences = self.normalizers(batch) if normalizers is None else normalizers
        _, weights = self._factor_and_weights(batch)
        targets = batch["encoder_target_tokens"]
        sums, hits_BL = self._token_sums(params, encoded, targets, weights, factor)
        loss = sums.pop("loss") if factor is None else sums.pop("loss") / factor
        sums |= metrics.row_sums(batch) | {"masked_tokens": sums["target_tokens"]}
        if (labels := batch.get("next_sentence_label")) is not None:
            sentence_sums = self._next_sentence_sums(params, encoded, labels)
            sentence_loss = sentence_sums["next_sentence_loss"]
            loss = loss + (sentence_loss if sentences is None else sentence_loss / sentences)
            sums |= sentence_sums
        return loss, sums, hits_BL

    def _word_sums(self, batch, hits_BL):
        """Return the numbers of words with a target, and of words with all targets predicted."""
        vocabulary, targets_BL = self.output_vocabulary, batch["encoder_target_tokens"]
        starts, special = np.zeros([2, self.module.config.vocab_size], bool)
        starts[: vocabulary.vocab_size] = vocabulary.word_starts()
        special[list(vocabulary.special_ids)] = True
        shifted = lambda x: jnp.pad(x[:, :-1], ((0, 0), (1, 0)))
        begins_BL = jnp.asarray(starts)[targets_BL] | shifted(jnp.asarray(special)[targets_BL])
        if (segments := batch.get("encoder_segment_ids")) is not None:
            begins_BL |= segments != shifted(segments)
        words_BL = jnp.cumsum(begins_BL, axis=1)
        predicted_BL = batch["encoder_loss_weights"] > 0
        count = targets_BL.shape[1] + 1
        add = lambda values, words: jax.ops.segment_sum(values, words, num_segments=count)
        targets_BW = jax.vmap(add)(predicted_BL.astype(jnp.int32), words_BL)
        hits_BW = jax.vmap(add)(hits_BL.astype(jnp.int32), words_BL)
        total = lambda x: x.sum().astype(jnp.float32)
        return {
            "masked_words": total(targets_BW > 0),
            "words_correct": total((targets_BW > 0) & (hits_BW == targets_BW)),
        }

    def _token_sums(self, params, encoded_BLD, targets_BL, weights_BL, factor):
        """Return `metrics.token_sums` of all targets with a weight, and their summed `loss`.

        Also return which of these targets have the highest logit, bool [B, L].
        """
        length = targets_BL.shape[1]
        room = min(length, math.ceil(self.predicted_share * length))
        if room == length:
            sums, hits_BL = self._score(params, encoded_BLD, targets_BL, weights_BL)
        else:
            predicted_BL = weights_BL > 0
            places_BL = jnp.argsort(~predicted_BL, axis=1, stable=True)  # predicted ones first
            turns = -(-length // room)
            padded = jnp.pad(places_BL, ((0, 0), (0, turns * room - length)), constant_values=-1)
            parts_TBP = jnp.moveaxis(padded.reshape(-1, turns, room), 1, 0)
            turns_needed = -(-predicted_BL.sum(1).max() // room)
            head = {name: params[name] for name in _HEAD}
            places = Places(parts_TBP, turns_needed, targets_BL, weights_BL)
            sums, hits_TBP = _in_turns(self._score, head, encoded_BLD, places)
            hits_BL = jnp.moveaxis(hits_TBP, 0, 1).reshape(len(targets_BL), -1)[:, :length]
            hits_BL = jnp.take_along_axis(hits_BL, jnp.argsort(places_BL, axis=1), axis=1)
        if factor is not None:
            sums["z_loss"] /= factor
        return sums, hits_BL

    def _score(self, params, encoded_BPD, targets_BP, weights_BP):
        """Return what `_token_sums` does for these places, its `z_loss` not divided."""
        logits = self.module.apply({"params": params}, encoded_BPD, method="predict")
        token_losses, z_losses = losses.cross_entropy(logits, targets_BP, self.z_loss)
        sums = metrics.token_sums(logits, targets_BP, token_losses, z_losses, weights_BP)
        hits_BP = metrics.hits(logits, targets_BP) & (weights_BP > 0)
        return sums | {"loss": (token_losses * weights_BP).sum()}, hits_BP

    def _next_sentence_sums(self, params, encoded_BLD, labels_BN):
        """Return the summed loss, the correct predictions and the number of labels except -1."""
        first = encoded_BLD[:, : labels_BN.shape[1]]
        logits = self.module.apply({"params": params}, first, method="next_sentence")
        labels, real = jnp.maximum(labels_BN, 0), (labels_BN >= 0).astype(jnp.float32)
        label_losses, _ = losses.cross_entropy(logits, labels)
        correct = (logits.argmax(-1) == labels) * real
        return {
            "next_sentence_loss": (label_losses * real).sum(),
            "next_sentences_correct": correct.sum(),
            "next_sentences": real.sum(),
        }

    def score_batch(self, params: Params, batch: Batch) -> jax.Array:
        """Return the log-likelihood [B] of each row's masked tokens, each seen without the others.

        With one mask a row this is a term of its pseudo-log-likelihood (Salazar et al. 2020).
        """
        logits = self.logits(params, batch)
        token_losses, _ = losses.cross_entropy(logits, batch["encoder_target_tokens"])
        return -(token_losses * (batch["encoder_loss_weights"] > 0)).sum(-1)

    def predict_batch(self, params: Params, batch: Batch, rng: jax.Array | None = None):
        """Return the inputs [B, L] with the best id at each place that has a weight."""
        best = self.logits(params, batch).argmax(-1).astype(jnp.int32)
        predicted_BL = batch["encoder_loss_weights"] > 0
        return jnp.where(predicted_BL, best, batch["encoder_input_tokens"])

    @property
    def FEATURE_CONVERTER_CLS(self) -> Callable[..., Any]:
        """The converter of this model's features (upstream's name)."""
        if self.feature_converter_cls is not None:
            return self.feature_converter_cls
        # Imported here, so that the model also runs without seqio.
        from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter

        return EncoderFeatureConverter


# --- logits of some places at a time

_HEAD = ("token_embedder", "mlm_head")  # parameters that a network's `predict` reads


class Places(NamedTuple):
    """Which places of the rows are computed together, and the targets and weights of all.

    `parts_TBP` int32 are T turns of P places, -1 for none; the first `needed` have all targets.
    """

    parts_TBP: jax.Array
    needed: jax.Array
    targets_BL: jax.Array
    weights_BL: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_turns(score, head, encoded_BLD, places: Places):
    """Return the added sums of `score` over the turns that are needed, and hits, bool [T, B, P].

    The gradient is computed together with the loss, turn by turn, so that no logits are kept for
    it. All turns are one program: the usual number is one.
    """
    return _loop(lambda *part: (score(head, *part), None), encoded_BLD, places, None)[:2]


def _in_turns_with_gradients(score, head, encoded_BLD, places):
    def turn(encoded, targets, weights):
        def loss(head, encoded):
            sums, hits = score(head, encoded, targets, weights)
            return sums["loss"], (sums, hits)

        return jax.grad(loss, (0, 1), has_aux=True)(head, encoded)[::-1]

    zeros = jax.tree.map(jnp.zeros_like, (head, encoded_BLD))
    sums, hits, gradients = _loop(turn, encoded_BLD, places, zeros)
    return (sums, hits), gradients


def _scale_gradients(score, gradients, cotangents):
    d_loss = cotangents[0]["loss"]
    scaled = lambda x: (x.astype(jnp.float32) * d_loss).astype(x.dtype)
    return *jax.tree.map(scaled, gradients), None


_in_turns.defvjp(_in_turns_with_gradients, _scale_gradients)


def _loop(compute, encoded_BLD, places: Places, gradients):
    """Return added sums, hits [T, B, P] and `gradients` with each turn's gradients added.

    `compute` maps (encoded [B, P, D], targets and weights [B, P]) to ((sums, hits), gradients).
    """
    rows_B1 = jnp.arange(len(encoded_BLD))[:, None]

    def turn(i):
        places_BP = places.parts_TBP[i]
        take = lambda x_BL: jnp.take_along_axis(x_BL, jnp.maximum(places_BP, 0), axis=1)
        weights_BP = jnp.where(places_BP < 0, 0.0, take(places.weights_BL))
        encoded_BPD = jnp.take_along_axis(encoded_BLD, jnp.maximum(places_BP, 0)[..., None], axis=1)
        return compute(encoded_BPD, take(places.targets_BL), weights_BP)

    def add(state):
        i, total, hits_TBP, gradients = state
        (sums, hits_BP), turn_gradients = turn(i)
        total, hits_TBP = jax.tree.map(jnp.add, total, sums), hits_TBP.at[i].set(hits_BP)
        if gradients is not None:
            head, d_encoded_BLD = gradients
            head = jax.tree.map(jnp.add, head, turn_gradients[0])
            # No place is in two turns; a place of no turn, -1, is dropped.
            at = jnp.where(places.parts_TBP[i] < 0, encoded_BLD.shape[1], places.parts_TBP[i])
            gradients = head, d_encoded_BLD.at[rows_B1, at].set(turn_gradients[1], mode="drop")
        return i + 1, total, hits_TBP, gradients

    shapes = jax.eval_shape(turn, 0)[0][0]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    start = jnp.int32(0), zeros, jnp.zeros(places.parts_TBP.shape, bool), gradients
    with jax.named_scope(losses.ONCE):
        end = jax.lax.while_loop(lambda state: state[0] < places.needed, add, start)
    return end[1:]
