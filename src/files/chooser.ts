/** The chooser in a document's toolbar: modules of a file, or files of a dump folder. */
import { Widget } from "@lumino/widgets";

export interface Choice {
  /** Heading under which choices with the same group are listed; "" for none. */
  group: string;
  label: string;
  value: string;
}

/** A drop-down that is hidden unless there are at least two choices. */
export class Chooser extends Widget {
  private current = "";
  private readonly select = document.createElement("select");

  constructor(
    name: string,
    private readonly chosen: (value: string) => void,
    /** False: the choice opens elsewhere, and this keeps showing the current value. */
    private readonly stays = true,
  ) {
    super();
    this.addClass("hloscope-chooser");
    this.select.setAttribute("aria-label", name);
    this.select.title = name;
    this.select.addEventListener("change", () => {
      const { value } = this.select;
      if (!this.stays) this.select.value = this.current;
      this.chosen(value);
    });
    this.node.append(this.select);
    this.hide();
  }

  present(choices: Choice[], current: string): void {
    const groups = new Map<string, HTMLElement>([["", this.select]]);
    this.select.replaceChildren();
    for (const choice of choices) {
      let parent = groups.get(choice.group);
      if (!parent) {
        parent = document.createElement("optgroup");
        (parent as HTMLOptGroupElement).label = choice.group;
        groups.set(choice.group, parent);
        this.select.append(parent);
      }
      const option = document.createElement("option");
      option.value = choice.value;
      option.textContent = choice.label;
      parent.append(option);
    }
    this.current = current;
    this.select.value = current;
    this.setHidden(choices.length < 2);
  }
}
