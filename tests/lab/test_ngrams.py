"""Test the hashes of n-grams and the search for where one stood before (train_mlx.py)."""

import mlx.core as mx
import numpy as np

import train_mlx


def test_equal_ngrams_have_one_row_wherever_they_stand_and_a_row_knows_nothing_of_what_comes_later() -> None:
    tokens = mx.array([[5, 1, 2, 3, 9, 1, 2, 3], [1, 2, 3, 4, 4, 4, 4, 4]], dtype=mx.int32)
    for order in (1, 2, 3):
        ids = np.array(train_mlx.ngram_ids(tokens, order, 2**20))
        assert ids[0, 3] == ids[0, 7] == ids[1, 2]
        assert len({ids[0, 3], ids[0, 2], ids[0, 4], ids[1, 7]}) == 4
        assert (np.array(train_mlx.ngram_ids(tokens[:, :4], order, 2**20)) == ids[:, :4]).all()
        assert (np.array(train_mlx.ngram_ids(tokens, order, 2**20, salt=1)) != ids).all()


def test_the_latest_earlier_place_of_an_ngram_is_the_one_that_a_search_by_hand_finds() -> None:
    tokens = np.random.default_rng(0).integers(0, 6, size=(3, 100)).astype(np.int32)
    for order in (1, 2, 4):
        seen = np.array(train_mlx.last_seen(mx.array(tokens), order))
        for row, t in np.ndindex(3, 100):
            if t < order - 1:
                continue
            wanted = tokens[row, t - order + 1 : t + 1]
            places = [s for s in range(order - 1, t) if (tokens[row, s - order + 1 : s + 1] == wanted).all()]
            assert seen[row, t] == (places[-1] if places else -1), (order, row, t)
