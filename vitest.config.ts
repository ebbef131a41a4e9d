import { defineConfig } from "vitest/config";
export default defineConfig({
  test: {
    include: ["tests/js/**/*.test.ts"],
    testTimeout: 60_000,
    isolate: false, // no test changes what another imports
    globalSetup: "tests/js/python-views.ts",
  },
});
