import { defineConfig } from "vitest/config";
export default defineConfig({
  test: {
    include: ["tests/js/**/*.test.ts"],
    testTimeout: 300_000,
    globalSetup: "tests/js/python-views.ts",
  },
});
