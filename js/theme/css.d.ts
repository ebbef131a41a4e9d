/** Style sheets are bundled as text; see `css` in bundle.mjs. */
declare module "*.css" {
  const text: string;
  export default text;
}
