"""Noise: exact scales, the right distribution (and tests that would notice a wrong one)."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgsr_core.noise.opendp import CELLS_A_CALL, OpenDPSampler
from pgsr_core.noise.seeded import SeededSampler
from pgsr_core.scales import expected_absolute_noise, float_at_least

DRAWS = 40_000
SCALES = [Fraction(1, 2), Fraction(2), Fraction(6), Fraction(40, 3)]
# A false alarm once in a billion runs; a scale off by 30 % has p-values far below even that.
ALARM = 1e-9


def draws(sampler, scale, count=DRAWS):
    return sampler.add_noise(np.zeros(count, dtype=np.int64), scale=scale)


def double_geometric(values, scale):
    """P(X = v) = (1−a)/(1+a) · a^|v| with a = exp(−1/scale)."""
    decay = math.exp(-1 / float(scale))
    return (1 - decay) / (1 + decay) * decay ** np.abs(values)


def p_value(noise, scale):
    """Chi-square test against double-geometric noise; cells with few expected draws pooled."""
    reach = 0
    while double_geometric(reach + 1, scale) * len(noise) >= 5:
        reach += 1
    cells = np.arange(-reach, reach + 1)
    probabilities = double_geometric(cells, scale)
    tail = (1 - probabilities.sum()) / 2
    observed = [(noise < -reach).sum(), *((noise == cell).sum() for cell in cells)]
    observed.append((noise > reach).sum())
    expected = np.array([tail, *probabilities, tail]) * len(noise)
    return stats.chisquare(observed, expected, sum_check=False).pvalue


SAMPLERS = {
    "opendp": OpenDPSampler,
    "seeded": lambda: SeededSampler(np.random.default_rng(20260701)),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_noise_is_double_geometric_at_its_scale_and_at_no_other(name, scale):
    noise = draws(SAMPLERS[name](), scale)
    assert p_value(noise, scale) > ALARM
    assert p_value(noise, scale * Fraction(7, 10)) < ALARM
    assert p_value(noise, scale * Fraction(13, 10)) < ALARM


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


def test_progress_adds_up_to_all_cells_over_several_calls(monkeypatch):
    monkeypatch.setattr("pgsr_core.noise.opendp.CELLS_A_CALL", 7)
    reported = []
    values = np.arange(20, dtype=np.int64).reshape(4, 5) * 10**9
    noisy = OpenDPSampler().add_noise(values, scale=Fraction(1), progress=reported.append)
    assert reported == [7, 7, 6]
    assert (np.round(noisy / 10**9) * 10**9 == values).all()


def test_two_draws_differ_in_one_process_and_in_two():
    sampler = OpenDPSampler()
    one, other = draws(sampler, Fraction(50), 200), draws(OpenDPSampler(), Fraction(50), 200)
    assert (one != other).any()
    assert (one != draws(sampler, Fraction(50), 200)).any()
    code = (
        "import numpy as np; from fractions import Fraction;"
        "from pgsr_core.noise.opendp import OpenDPSampler;"
        "np.random.seed(1);"
        "print(OpenDPSampler().add_noise(np.zeros(200, dtype=np.int64), scale=Fraction(50)))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout != runs[1].stdout


def test_numpys_seed_has_no_effect_on_a_release():
    noise = []
    for _ in range(2):
        np.random.seed(7)  # the global state is what must not matter
        noise.append(draws(OpenDPSampler(), Fraction(50), 200))
    assert (noise[0] != noise[1]).any()


def test_only_the_sampler_of_releases_calls_itself_private():
    assert OpenDPSampler().private is True
    seeded = SeededSampler(np.random.default_rng(1))
    assert seeded.private is False
    assert "simulation" in seeded.name


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


@pytest.mark.parametrize("value", ["1/3", "2/3", "1/10", "3/10", "1", "10000000000000001"])
def test_awkward_scales_are_rounded_up(value):
    assert Fraction(float_at_least(Fraction(value))) >= Fraction(value)


@pytest.mark.parametrize(
    "scale",
    [
        *(Fraction(levels * 10, tenths) for levels in range(1, 8) for tenths in (1, 3, 5, 7, 11)),
        Fraction(1, 1000),
        Fraction(1, 10**9),
        Fraction(10**9),
        Fraction(10**15, 3),
        Fraction(2 * 10**6 * 10**12),
    ],
    ids=str,
)
def test_every_scale_that_a_configuration_can_ask_for_is_drawn(scale):
    """OpenDP's own privacy map is asked inside; it must not object to a right scale."""
    noisy = OpenDPSampler().add_noise(np.zeros(20, dtype=np.int64), scale=scale)
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
