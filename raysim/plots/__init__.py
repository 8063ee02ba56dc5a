"""Charts of reports, studies and reproductions: one style, numbers in, SVG markup out."""
