"""Tables and plots of results, beside the paper's figures."""

import pytest
from toy_results import AGAIN, PROXY, SSIM, TOY, scored, toy_rows

from neurosql.bench import compare
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.metrics.column import paired_train, sampled
from neurosql.report import conclusion, plots, tables


def test_the_papers_figures_stand_beside_the_cells_that_they_belong_to():
    results = [scored(row | {"arm": "VAE"}, {PROXY: 1.0}) for row in toy_rows(a=0.5)]
    results = [row | {"latent_dim": 2} for row in results]
    table = compare.build(EXPERIMENTS["mnist"], results)
    assert table.printed[("mnist", 2), "VAE", "proxy-fid"] == pytest.approx(1.070473)
    averages = compare.build(EXPERIMENTS["mnist"], results, averaged=True)
    assert averages.printed[("mnist",), "VAE", "ssim"] == pytest.approx(0.178999)
    main = compare.build(EXPERIMENTS["main"], results)
    assert main.printed[("mnist",), "VAE", "ssim"] == pytest.approx(0.179)
    accuracy = sampled("downstream accuracy")
    classified = [scored(row | {"arm": "NeuroSQL, by class"}, {accuracy: 0.9}) for row in results]
    assert compare.build(EXPERIMENTS["downstream"], classified).printed[
        ("mnist", 2), "NeuroSQL, by class", "downstream accuracy"
    ] == pytest.approx(0.8771)
    timed = [row | {"arm": "NeuroSQL, greedy", "epoch seconds": 2.0} for row in results]
    assert compare.build(EXPERIMENTS["runtime"], timed).printed[
        ("mnist", 2), "NeuroSQL, greedy", "epoch seconds"
    ] == pytest.approx(1.4)


def test_a_figure_of_the_paper_stands_beside_ours():
    ours = {PROXY: 1.0, SSIM: 0.1, AGAIN: 0.6}
    results = [
        scored(row | {"arm": arm, "latent_dim": 2}, ours) for row in toy_rows(a=0.5) for arm in ("VAE", "NeuroSQL, x")
    ]
    table = compare.build(EXPERIMENTS["mnist"], results)
    assert tables.layout(table) == [PROXY, "proxy-fid", SSIM, AGAIN, "ssim", "lpips"]
    heads, _, *lines = tables.to_markdown(table).splitlines()[2:]
    assert [len(line.split("|")) for line in lines] == [len(heads.split("|"))] * len(lines)
    shown = dict(zip(heads.split("|"), lines[0].split("|")))
    assert shown[" proxy-fid (in the paper) "] == " 1.070 " and shown[" ssim ↑ (sampled) "] == " 0.100 "
    cells = [line.split("&") for line in tables.to_latex(table).splitlines() if "&" in line]
    assert {len(row) for row in cells} == {2 + 1 + len(tables.layout(table))} and "1.070" in cells[1][4]
    drawn = tables.to_html(table).split("<tr")[1:]
    assert len({row.count("</td>") + row.count("</th>") for row in drawn}) == 1


def test_tables_as_latex_markdown_and_csv_hold_the_same_figures():
    table = compare.build(TOY, toy_rows(a=0.5, b=0.4, c=0.3))
    latex, plain = tables.to_latex(table), tables.to_csv(table).splitlines()
    assert latex.count(r"\textbf") == 1 and latex.count(r"\\") >= 4 and "Toy" in latex
    assert plain[0].startswith("data,latent_dim,method,score,features,mode,mean") and len(plain) == 1 + 3 * 2
    shown = tables.figure(table.cells[("mnist", 8), "a", SSIM].mean)
    assert shown in latex and f"**{shown}** ±" in tables.to_markdown(table)
    assert {line.count("|") for line in tables.to_markdown(table).splitlines()[2:]} == {6}


def test_a_plot_has_the_means_of_the_table_and_none_of_two_data_sets():
    results = [row | {"latent_dim": dim} for dim in (2, 8) for row in toy_rows(a=0.5 + 0.01 * dim, b=0.4)]
    results += [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results)
    panel = plots.panels(table)[0]
    shown = {(("mnist", dim), arm): cell.mean for arm, of in panel.arms.items() for dim, cell in of.items()}
    shown |= {(("mnist", ""), arm): cell.mean for arm, cell in panel.flat.items()}
    assert shown == {line: table.cells[*line, SSIM].mean for line in table.lines} and len(shown) == 5
    mixed = compare.build(TOY, results + [row | {"data": "oasis"} for row in toy_rows(a=0.1)])
    assert plots.draw(mixed) is None and plots.draw(table) is not None


def test_a_page_names_its_only_data_set_once():
    one = compare.build(TOY, toy_rows(a=0.5, b=0.4))
    two = compare.build(TOY, toy_rows(a=0.5) + [row | {"data": "oasis"} for row in toy_rows(a=0.4)])
    assert "mnist" not in tables.to_html(one)
    assert all(name in tables.to_html(two) for name in ("mnist", "oasis"))
    for whole in (tables.to_html(one), tables.to_html(two)):
        head, *lines = whole.split("<tr")[1:]
        assert {line.count("</td>") for line in lines} == {head.count("</th>")}


def test_the_papers_ssim_stands_beside_our_paired_one_and_says_so():
    columns = (sampled("ssim"), paired_train("ssim"))
    table = compare.Table(TOY, ("latent_dim",), columns, printed={((2,), "NeuroSQL", "ssim"): 0.564})
    assert tables.layout(table) == [*columns, "ssim"]
    heads = tables.to_html(compare.Table(TOY, ("latent_dim",), columns, [((2,), "NeuroSQL")], printed=table.printed))
    assert "in the paper: paired, by its size" in heads


def test_the_conclusion_names_the_best_contender_and_how_certain_it_is():
    results = toy_rows(a=0.5, b=0.6, c=0.4)
    table = compare.build(TOY, results)
    words, certain = conclusion.sentences(table)
    best = tables.figure(table.cells[("mnist", 8), "b", SSIM].mean)
    assert words.startswith(f"By ssim (sampled), higher is better: b, {best}; then a, ")
    assert certain.startswith(f"3 of {len(table.differences)} comparisons")
    one = compare.build(TOY, [row for row in results if row["seed"] == 0])
    assert conclusion.sentences(one)[-1] == conclusion.ONE_SEED
    assert conclusion.sentences(compare.build(TOY, toy_rows(a=0.5))) == []


def test_a_page_of_the_smallest_budget_says_that_it_is_noise():
    short, long = ([row | {"epochs": epochs} for row in toy_rows(a=0.5)] for epochs in (2, 40))
    assert conclusion.is_noise(short) and not conclusion.is_noise(long) and not conclusion.is_noise([])


def test_the_conclusion_compares_within_a_data_set():
    digits = toy_rows(a=0.5, b=0.6)
    faces = [row | {"data": "celeba"} for row in toy_rows(a=0.3, b=0.2)]
    words = conclusion.sentences(compare.build(TOY, [*digits, *faces]))
    assert "b (mnist), " in words[0] and "then a (mnist), " in words[0]
    assert "a (celeba), " in words[1] and "then b (celeba), " in words[1]
