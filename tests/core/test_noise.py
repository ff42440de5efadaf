"""Noise: exact scales, the right distribution (and tests that would notice a wrong one)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from pgsr_core.documents.words import SAMPLERS_IN_WORDS
from pgsr_core.noise.catalogue import ReleaseSampler
from pgsr_core.noise.fast_exact import FastExactSampler
from pgsr_core.noise.opendp import CELLS_A_CALL, OpenDPSampler
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.scales import expected_absolute_noise, float_at_least, ratio_at_least
from tasks.configuration.reach import LARGEST_SCALE

DRAWS = 40_000
SCALES = [Fraction(scale) for scale in ("1/2", "1", "7/3", "6", "40/3", "3000001/3")]
# A false alarm less than once in ten million runs; a scale off by 10 % is far beyond it.
ALARM = 1e-9


def draws(sampler, scale, count=DRAWS):
    return sampler.add_noise(np.zeros(count, dtype=np.int64), scale=scale)


def double_geometric(values, scale):
    """P(X = v) = (1−a)/(1+a) · a^|v| with a = exp(−1/scale)."""
    decay = math.exp(-1 / float(scale))
    return (1 - decay) / (1 + decay) * decay ** np.abs(values)


def at_most(values, scale):
    """P(X ≤ v), the sum of the above."""
    rate = 1 / float(scale)
    whole = 1 + math.exp(-rate)
    return np.where(
        values < 0,
        np.exp(np.minimum(values, 0) * rate) / whole,
        1 - np.exp(-(np.maximum(values, 0) + 1) * rate) / whole,
    )


def p_value(noise, scale):
    """Chi-square test against double-geometric noise, in some sixty classes."""
    sure = np.concatenate([[1e-3, 3e-3], np.linspace(0.01, 0.5, 30)])
    upper = -float(scale) * np.log(2 * sure)
    ends = np.unique(np.ceil(np.concatenate([-upper, upper])))
    # The formula for the p-value is off by orders of magnitude where few draws are expected.
    below = at_most(ends, scale)
    ends = ends[np.minimum(below, 1 - below) * len(noise) >= 100]
    expected = np.diff(at_most(ends, scale), prepend=0, append=1) * len(noise)
    observed = np.bincount(np.searchsorted(ends, noise), minlength=len(expected))
    return stats.chisquare(observed, expected, sum_check=False).pvalue


SAMPLERS = {
    "opendp": OpenDPSampler,
    "fast-exact": FastExactSampler,
    "seeded": lambda: SeededSampler(np.random.default_rng(20260701)),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_noise_is_double_geometric_at_its_scale_and_at_no_other(name, scale):
    noise = draws(SAMPLERS[name](), scale)
    assert p_value(noise, scale) > ALARM
    assert p_value(noise, scale * Fraction(9, 10)) < ALARM
    assert p_value(noise, scale * Fraction(11, 10)) < ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 3), Fraction(40)], ids=str)
def test_the_classes_of_the_chi_square_test_have_the_probabilities_of_their_values(scale):
    ends = np.array([-9, -2, -1, 0, 1, 5, 30])
    values = np.arange(-10_000, 10_001)
    summed = [double_geometric(values[values <= end], scale).sum() for end in ends]
    assert at_most(ends, scale) == pytest.approx(summed)


@pytest.mark.parametrize("name", SAMPLERS)
def test_cells_are_independent_of_their_neighbours(name):
    noise = draws(SAMPLERS[name](), Fraction(5)).astype(float)
    for lag in (1, 2, CELLS_A_CALL // 10):
        correlation = np.corrcoef(noise[:-lag], noise[lag:])[0, 1]
        # Six standard deviations: a shared or repeated draw would show as a correlation of 1.
        assert abs(correlation) < 6 / math.sqrt(DRAWS)


@pytest.mark.parametrize("name", SAMPLERS)
def test_noise_is_added_to_integers_of_any_shape_and_leaves_them_alone(name):
    values = np.array([[10**12, -(10**12)], [0, 5], [7, 9]], dtype=np.int64)
    values.setflags(write=False)
    before = values.copy()
    noisy = SAMPLERS[name]().add_noise(values, scale=Fraction(3))
    assert noisy.dtype == np.int64
    assert noisy.shape == values.shape
    assert (values == before).all()
    assert np.abs(noisy - values).max() < 3 * 60
    assert not np.shares_memory(noisy, values)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_column_of_a_table_is_read_in_its_own_order(name):
    table = np.arange(0, 6 * 10**9, 10**9, dtype=np.int64).reshape(2, 3)
    noisy = SAMPLERS[name]().add_noise(table.T, scale=Fraction(1))
    assert (np.round(noisy / 10**9) * 10**9 == table.T).all()


@pytest.mark.parametrize("name", ["opendp", "fast-exact"])
def test_progress_adds_up_to_all_cells_over_several_calls(name, monkeypatch):
    monkeypatch.setattr("pgsr_core.noise.opendp.CELLS_A_CALL", 7)
    monkeypatch.setattr("pgsr_core.noise.fast_exact.CELLS_A_PIECE", 7)
    reported = []
    values = np.arange(20, dtype=np.int64).reshape(4, 5) * 10**9
    noisy = SAMPLERS[name]().add_noise(values, scale=Fraction(1), progress=reported.append)
    assert reported == [7, 7, 6]
    assert (np.round(noisy / 10**9) * 10**9 == values).all()


@pytest.mark.parametrize("chosen", ReleaseSampler)
def test_two_draws_differ_in_one_process_and_whatever_numpys_seed(chosen):
    sampler = chosen.make()
    noise = []
    for source in (sampler, sampler, chosen.make()):
        np.random.seed(7)  # the global state is what must not matter
        noise.append(draws(source, Fraction(50), 200).tolist())
    assert noise[0] != noise[1]
    assert noise[0] != noise[2]


def test_two_new_processes_draw_differently():
    code = (
        "import numpy as np; from fractions import Fraction;"
        "from pgsr_core.noise.catalogue import ReleaseSampler;"
        "np.random.seed(1); zeros = np.zeros(200, dtype=np.int64);"
        "print([s.make().add_noise(zeros, scale=Fraction(50)).tolist() for s in ReleaseSampler])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    for one, other in zip(*(json.loads(run.stdout) for run in runs), strict=True):
        assert one != other


@pytest.mark.parametrize("chosen", ReleaseSampler)
def test_a_process_that_is_forked_after_a_draw_draws_noise_of_its_own(chosen):
    sampler = chosen.make()
    draws(sampler, Fraction(50), 200)
    children = []
    for _ in range(2):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, draws(sampler, Fraction(50), 200).tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        children.append(os.read(reading, 200 * 8))
        os.close(reading)
        os.waitpid(child, 0)
    parent = draws(sampler, Fraction(50), 200).tobytes()
    assert [len(noise) for noise in children] == [len(parent)] * 2
    assert len({*children, parent}) == 3


@pytest.mark.parametrize("chosen", ReleaseSampler)
def test_every_sampler_of_releases_is_private_and_is_known_by_its_name_and_in_words(chosen):
    sampler = chosen.make()
    assert sampler.private is True
    assert sampler.name == chosen
    assert "operating system" in SAMPLERS_IN_WORDS[chosen]


def test_a_seeded_sampler_is_not_private_and_no_choice_for_a_release():
    seeded = SeededSampler(np.random.default_rng(1))
    assert seeded.private is False
    assert "simulation" in seeded.name
    assert "no privacy" in SAMPLERS_IN_WORDS[seeded.name]
    with pytest.raises(ValueError, match="seeded"):
        ReleaseSampler(seeded.name)


def test_a_seeded_draw_is_reproducible_and_another_seed_gives_another():
    first, again, other = (
        draws(SeededSampler(np.random.default_rng(seed)), Fraction(9), 100) for seed in (5, 5, 6)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_a_seeded_sampler_does_not_show_its_generator():
    assert "PCG64" not in repr(SeededSampler(np.random.default_rng(1)))


# --- scales ---------------------------------------------------------------------------------


@given(value=st.fractions(min_value=Fraction(1, 10**15), max_value=10**18))
def test_a_scale_is_never_rounded_down_and_never_by_more_than_one_step(value):
    rounded = float_at_least(value)
    assert Fraction(rounded) >= value
    assert Fraction(math.nextafter(rounded, 0)) < value


@given(value=st.fractions(min_value=Fraction(1, 10**15), max_value=2**31))
@example(value=Fraction(2**31))
@example(value=Fraction(2**33 - 1, 4))
@example(value=Fraction(2**30 * 3 + 1, 3))
@example(value=Fraction(1, 3**40))
def test_a_scale_is_a_ratio_of_bounded_integers_that_is_never_below_it(value):
    t, s = ratio_at_least(value, numerator=2**31, denominator=2**62)
    assert 1 <= t <= 2**31
    assert 1 <= s <= 2**62
    assert Fraction(t, s) >= value
    if value.numerator <= 2**31 and value.denominator <= 2**62:
        assert Fraction(t, s) == value
    elif s < 2**62:
        assert Fraction(t, s) < value * (1 + Fraction(1, 2**30))


@pytest.mark.parametrize("value", ["0", "-1", "2147483649", "8589934593/4"])
def test_a_scale_that_no_ratio_can_hold_is_refused(value):
    with pytest.raises(ValueError, match="scale"):
        ratio_at_least(Fraction(value), numerator=2**31, denominator=2**62)


@pytest.mark.parametrize("value", ["1/3", "2/3", "1/10", "3/10", "1", "10000000000000001"])
def test_awkward_scales_are_rounded_up(value):
    assert Fraction(float_at_least(Fraction(value))) >= Fraction(value)


AWKWARD_SCALES = [
    *(Fraction(levels * 10, tenths) for levels in range(1, 8) for tenths in (1, 3, 5, 7, 11)),
    Fraction(1, 1000),
    Fraction(1, 10**9),
    Fraction(10**18 + 1, 3 * 10**18),
    Fraction(10**24 - 1, 10**15),
    Fraction(10**9),
]


@pytest.mark.parametrize("chosen", ReleaseSampler)
def test_every_scale_that_a_configuration_can_ask_for_is_drawn(chosen):
    """OpenDP's own privacy map is asked inside; it must not object to a right scale."""
    for scale in AWKWARD_SCALES:
        assert scale <= LARGEST_SCALE
        noisy = chosen.make().add_noise(np.zeros(20, dtype=np.int64), scale=scale)
        assert noisy.dtype == np.int64


def test_a_scale_below_what_opendp_was_asked_for_is_noticed(monkeypatch):
    """The second opinion has power: were OpenDP to claim more ε, nothing would be drawn."""
    import opendp.prelude as dp

    made = dp.m.make_laplace
    monkeypatch.setattr(
        dp.m, "make_laplace", lambda *space, scale: made(*space, scale=scale * 0.999)
    )
    with pytest.raises(ArithmeticError):
        draws(OpenDPSampler(), Fraction(3), 10)


@pytest.mark.parametrize("scale", ["1/10", "1/2", "1", "3", "100/3", "1000"])
def test_expected_absolute_noise_is_the_sum_it_stands_for(scale):
    scale = Fraction(scale)
    values = np.arange(1, int(60 * scale) + 60)
    direct = 2 * float(np.sum(values * double_geometric(values, scale)))
    assert expected_absolute_noise(scale) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("scale", [Fraction(10) ** power for power in (6, 9, 12, 18, 30)], ids=str)
def test_expected_absolute_noise_of_a_huge_scale_is_the_scale(scale):
    assert expected_absolute_noise(scale) == pytest.approx(float(scale), rel=1e-6)


@pytest.mark.parametrize("scale", [Fraction(1, 10**power) for power in (4, 9, 12, 30)], ids=str)
def test_expected_absolute_noise_of_a_tiny_scale_is_nothing(scale):
    assert expected_absolute_noise(scale) == 0


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(30)], ids=str)
def test_the_mean_absolute_draw_is_the_stated_expectation(name, scale):
    noise = np.abs(draws(SAMPLERS[name](), scale))
    spread = noise.std() / math.sqrt(DRAWS)
    assert abs(noise.mean() - expected_absolute_noise(scale)) < 6 * spread
