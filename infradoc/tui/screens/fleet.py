"""All targets in one table, worst first."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input, Static
from textual.widgets.data_table import RowKey

from infradoc.tui import paint
from infradoc.tui.screens.base import DoctorScreen, Job
from infradoc.tui.screens.target import TargetScreen
from infradoc.tui.table import Row, cells, columns_for, head, matches, ordered, status_text


class FleetScreen(DoctorScreen):
    """The first screen. The cursor stays on its target while rows change places."""

    KEYS = (
        ("Enter", "k_open", "open"),
        ("/", "k_filter", "filter"),
        ("p", "k_pause", "app.pause"),
        ("e", "k_export", "app.export"),
        ("t", "k_theme", "app.theme"),
        ("?", "k_help", "app.help"),
        ("q", "k_quit", "app.quit_safely"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._shown: list[str] = []
        self._cells: dict[str, list[Text]] = {}
        self._columns: list[tuple[str, int]] = []

    def body(self) -> ComposeResult:
        """The table, what is said of the target under the cursor, the filter."""
        yield DataTable(id="fleet", cursor_type="row", zebra_stripes=True, cell_padding=0)
        yield Static("", id="detail", markup=False)
        made = Input(placeholder=self.doctor.say["filter"], id="filter", compact=True)
        made.display = False
        yield made

    def job(self) -> Job:
        """All states; read in a thread because a recording works some of them out."""
        return partial(self._rows, self.doctor)

    @staticmethod
    def _rows(doctor: Any) -> list[Row]:
        return [Row(view.spec, doctor.state_of(view), doctor.moment(view)) for view in doctor.views]

    def apply(self, result: Any) -> None:
        """Show the rows."""
        self.rows = result
        self.draw()

    def draw(self) -> None:
        """Bring the table up to date; cells that stay the same are not touched."""
        say, table = self.doctor.say, self.table
        text = self.query_one("#filter", Input).value
        rows = [row for row in ordered(self.rows) if matches(row, text, say)]
        columns = columns_for(self.size.width - 1)  # the table's margin
        specs = [row.spec for row in rows]
        if columns != self._columns or specs != self._shown:
            self._rebuild(rows, columns)
        else:
            for row in rows:
                made = cells(row, columns, say)
                for (name, _), value, before in zip(columns, made, self._cells[row.spec], strict=True):
                    if value != before or value.style != before.style:
                        table.update_cell(row.spec, name, value)
                self._cells[row.spec] = made
        self._shown, self._columns = specs, columns
        self._say_top(text)
        self._say_detail()

    def _rebuild(self, rows: list[Row], columns: list[tuple[str, int]]) -> None:
        say, table, chosen = self.doctor.say, self.table, self.chosen
        table.clear(columns=columns != self._columns)
        if columns != self._columns:
            for name, width in columns:
                table.add_column(head(name, width, say), key=name, width=width + 1)
        for row in rows:
            self._cells[row.spec] = cells(row, columns, say)
            table.add_row(*self._cells[row.spec], key=row.spec)
        if chosen is not None and any(row.spec == chosen for row in rows):
            table.move_cursor(row=table.get_row_index(chosen), animate=False)

    def _say_top(self, text: str) -> None:
        say = self.doctor.say
        counts = [
            f"{sum(1 for row in self.rows if row.state.status == status)} {say[status].lstrip('!? ')}"
            for status in ("unhealthy", "degraded", "unknown", "ok")
            if any(row.state.status == status for row in self.rows)
        ]
        many = say["targets" if len(self.rows) != 1 else "target_one"]
        head = f"{say['title']}  {len(self.rows)} {many}: {', '.join(counts)}"
        self.say_top(head + (f"  /{text}" if text else ""), self.doctor.time_text())

    def _say_detail(self) -> None:
        row, say = self.row, self.doctor.say
        if row is None:
            text = self.query_one("#filter", Input).value
            self.query_one("#detail", Static).update(Text(say["no_match"].format(text=text) if text else ""))
            return
        state, vitals = row.state, row.state.vitals
        what = " ".join(part for part in (state.name, state.system or "", state.version or "") if part)
        made = Text()
        made.append(paint.one_line(what), style="bold")
        made.append(f"  {status_text(row, say)}  {say['wait']} {paint.seconds(vitals.get('estimated_wait_seconds'))}")
        for finding in state.findings[:3]:
            made.append(f"\n{paint.one_line(finding['title'])}", style="yellow")
            made.append(f"  {finding['confidence']:.0%}  [{finding['id']}]", style="dim")
        if state.error:
            made.append(f"\n{paint.one_line(state.error)}", style="red")
        self.query_one("#detail", Static).update(made)

    # --- what is chosen --------

    @property
    def table(self) -> DataTable[Text]:
        """The table."""
        return self.query_one("#fleet", DataTable)

    @property
    def chosen(self) -> str | None:
        """The spec under the cursor."""
        table = self.table
        if not table.row_count or not 0 <= table.cursor_row < table.row_count:
            return None
        key: RowKey = table.coordinate_to_cell_key(table.cursor_coordinate).row_key
        return key.value

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return next((row for row in self.rows if row.spec == self.chosen), None)

    def on_data_table_row_highlighted(self) -> None:
        """The cursor moved."""
        self._say_detail()

    def action_open(self) -> None:
        """Open the target under the cursor."""
        if self.table.row_count:
            self.table.action_select_cursor()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: open the target."""
        view = self.doctor.view(event.row_key.value)
        if view is not None:
            self.app.push_screen(TargetScreen(view))

    # --- filter --------

    def action_filter(self) -> None:
        """Open the filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        self.set_focus(box)

    def action_clear_filter(self) -> None:
        """Drop the filter."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self.set_focus(self.table)

    def on_input_changed(self) -> None:
        """Filter while typing."""
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the filter and goes back to the table."""
        event.input.display = False
        self.set_focus(self.table)
