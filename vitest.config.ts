import { defineConfig } from "vitest/config";
export default defineConfig({
  test: {
    include: ["tests/js/**/*.test.ts"],
    testTimeout: 60_000,
    globalSetup: "tests/js/python-views.ts",
  },
});
