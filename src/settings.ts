/** The settings described by schema/explorer.json, with their defaults if there is no registry. */
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import { Signal } from "@lumino/signaling";
import type { Options } from "../js/view.ts";

export const SETTINGS_ID = "hloscope:explorer";

export class ExplorerSettings {
  colorBy = "family";
  theme: Options["theme"] = "auto";
  /** Id of the chip on which time is modelled; "": the capture's own. */
  hardware = "";
  askAboveMegabytes = 100;
  readonly changed = new Signal<this, void>(this);

  /** Resolves once the settings are read; on failure, the defaults remain. */
  async load(registry: ISettingRegistry | null): Promise<void> {
    if (!registry) return;
    try {
      const found = await registry.load(SETTINGS_ID);
      const take = () => {
        this.colorBy = found.composite.colorBy as string;
        this.theme = found.composite.theme as Options["theme"];
        this.hardware = found.composite.hardware as string;
        this.askAboveMegabytes = found.composite.askAboveMegabytes as number;
        this.changed.emit();
      };
      found.changed.connect(take);
      take();
    } catch (error) {
      console.warn("hloscope: settings could not be read", error);
    }
  }

  get options(): Partial<Options> {
    const { colorBy, theme, hardware } = this;
    return { colorBy, theme, hardware: hardware || null };
  }
}
