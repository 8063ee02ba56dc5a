"""Diagrams of a round: blocks and sums, and the ways of the models in four kinds of federations."""

from __future__ import annotations

from math import cos, pi, sin

from docs.pictures.svg import arrow, box, document, dot, line, text

WIDTH = 460


def rounds() -> dict[str, str]:
    """Return all diagrams by file name."""
    drawn = {"blocks": blocks(), "star": star(), "radfed": radfed(), "edges": edges(), "gossip": gossip()}
    return {f"round-{name}.svg": picture for name, picture in drawn.items()}


def blocks() -> str:
    """Draw a cohort of eight clients in four blocks on two actors, and the tree of their sums."""
    parts = [text(8, 20, "1. Eight clients of the cohort in four blocks", "start")]
    for block in range(4):
        left = 8 + 112 * block
        parts.append(box(left, 32, 108, 48))
        parts += [
            dot(left + 30 + 48 * k, 56, 16, line(block // 2), str((3, 7, 12, 18, 21, 30, 34, 41)[2 * block + k]))
            for k in range(2)
        ]
        parts.append(arrow(left + 54, 80, left + 54, 128, gap=3))
    for actor in range(2):
        left = 8 + 224 * actor
        parts += [
            box(left, 128, 220, 38, f"2. Actor {actor + 1} trains a group"),
            arrow(left + 110, 166, WIDTH / 2 - 30 + 60 * actor, 220, gap=3),
        ]
    parts.append(text(8, 206, "3. A sum per group", "start"))
    parts += [box(110, 220, 240, 38, "4. Server: next global model")]
    return document(
        "A round: a cohort of eight clients in four blocks, two actors, one sum for each group, the server rule",
        WIDTH,
        268,
        parts,
    )


def star() -> str:
    """Draw a server and its clients, of which three form the cohort."""
    parts = [box(165, 10, 130, 38, "server")]
    for place in range(5):
        x, is_in = 50 + 90 * place, place in (0, 2, 3)
        if is_in:
            parts += [
                arrow(206 + 12 * place, 48, x - 8, 134, gap=4),
                arrow(x + 8, 134, 222 + 12 * place, 48, line(0), gap=4),
            ]
        parts.append(dot(x, 152, 20, line(0) if is_in else "var(--muted)"))
        parts.append(text(x, 190, "trains" if is_in else "waits", kind="small"))
    parts += [
        text(8, 86, "model", "start", kind="small"),
        text(8, 104, "update", "start", colour=line(0), kind="small"),
    ]
    return document(
        "A star: the server sends the model to three of five clients and receives their updates", WIDTH, 200, parts
    )


def radfed() -> str:
    """Draw three travelling models over four rounds, and their aggregation."""
    visits = ((0, 2, 1, 0), (1, 0, 2, 2), (2, 1, 0, 1))
    x_of, y_of = [40 + 90 * turn for turn in range(4)], [50 + 56 * client for client in range(3)]
    parts = [text(x, 20, f"round {turn + 1}", kind="small") for turn, x in enumerate(x_of)]
    for model, clients in enumerate(visits):
        for turn in range(3):
            parts.append(
                arrow(x_of[turn], y_of[clients[turn]], x_of[turn + 1], y_of[clients[turn + 1]], line(model), gap=20)
            )
        parts.append(arrow(x_of[3], y_of[clients[3]], 385, 106, line(model), gap=18))
        parts += [dot(x_of[turn], y_of[client], 16, line(model), "ABC"[model]) for turn, client in enumerate(clients)]
    parts += [box(376, 86, 76, 40, "mean")]
    parts += [
        text(8, 208, "A row is a client. Models A, B and C travel; every 4th round aggregates.", "start", kind="small")
    ]
    return document(
        "RADFed: three models travel from client to client for four rounds and are then averaged", WIDTH, 218, parts
    )


def edges() -> str:
    """Draw a cloud, two edge servers and six clients."""
    parts = [box(195, 8, 120, 36, "cloud")]
    for edge in range(2):
        x = 150 + 210 * edge
        parts += [
            box(x - 55, 82, 110, 36, f"edge {edge + 1}"),
            arrow(235 + 40 * edge, 44, x + 8 - 16 * edge, 82, gap=3),
            arrow(x - 8 + 16 * edge, 82, 219 + 72 * edge, 44, line(edge), gap=3),
        ]
        for client in range(3):
            at = x + 66 * (client - 1)
            parts += [
                arrow(x + 24 * (client - 1) - 4, 118, at - 5, 170, gap=4),
                arrow(at + 5, 170, x + 24 * (client - 1) + 6, 118, line(edge), gap=4),
                dot(at, 186, 16, line(edge)),
            ]
    parts += [text(4, 66, "every 10th round", "start", kind="small"), text(4, 162, "each round", "start", kind="small")]
    return document(
        "Edges: clients exchange models with their edge in each round, edges with the cloud in every tenth",
        WIDTH,
        210,
        parts,
    )


def gossip() -> str:
    """Draw a ring of six clients that send their models to both neighbours."""
    places = [(150 + 105 * cos(pi * k / 3), 112 + 88 * sin(pi * k / 3)) for k in range(6)]
    parts = []
    for number, (x, y) in enumerate(places):
        for step, shift in ((1, 4.0), (-1, 4.0)):
            to_x, to_y = places[(number + step) % 6]
            length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
            aside, down = -shift * (to_y - y) / length, shift * (to_x - x) / length
            parts.append(arrow(x + aside, y + down, to_x + aside, to_y + down, line(number), gap=20))
    parts += [dot(x, y, 16, line(number), str(number)) for number, (x, y) in enumerate(places)]
    parts += [
        text(290, 88, "No server. Each client", "start", kind="small"),
        text(290, 106, "trains its own model,", "start", kind="small"),
        text(290, 124, "sends it to its neighbours", "start", kind="small"),
        text(290, 142, "and mixes what it receives.", "start", kind="small"),
    ]
    return document("Gossip: six clients on a ring send their models to both neighbours", WIDTH, 224, parts)
