//! Evaluates the gamma function, its incomplete form and the exponential integral.

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// ln Gamma(x) for x > 0 (Lanczos, g = 7, n = 9); NaN elsewhere.
pub fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x.is_nan() || x <= 0.0 {
        return f64::NAN;
    }
    if x < 0.5 {
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let y = x - 1.0;
    let t = y + 7.5;
    let sum = COEFFICIENTS.iter().enumerate().skip(1).fold(COEFFICIENTS[0], |sum, (i, c)| sum + c / (y + i as f64));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (y + 0.5) * t.ln() - t + sum.ln()
}

/// Gamma(x) for x > 0.
pub fn gamma(x: f64) -> f64 {
    ln_gamma(x).exp()
}

/// e^x Gamma(a, x) x^-a: the upper incomplete gamma function, scaled so that it neither over- nor underflows.
/// For a > 0 and x > 0; NaN elsewhere.
pub fn upper_gamma_scaled(a: f64, x: f64) -> f64 {
    if !(a > 0.0 && x > 0.0 && x.is_finite()) {
        return f64::NAN;
    }
    if x < a + 1.0 {
        // Series for the lower function, subtracted from Gamma(a).
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        for _ in 0..1_000 {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term <= sum * 1e-17 {
                break;
            }
        }
        return (x + ln_gamma(a) - a * x.ln()).exp() - sum;
    }
    // Continued fraction (modified Lentz).
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / tiny;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..1_000 {
        let an = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = an * d + b;
        if d.abs() < tiny {
            d = tiny;
        }
        c = b + an / c;
        if c.abs() < tiny {
            c = tiny;
        }
        d = 1.0 / d;
        let delta = d * c;
        h *= delta;
        if (delta - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    h
}

/// e^-x Ei(x) for x > 0: the exponential integral, scaled so that it does not overflow. Minus infinity at 0.
pub fn ei_scaled(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x < 40.0 {
        // Ei(x) = gamma + ln x + sum x^k / (k k!); every term is positive, so nothing cancels for x > 0.4.
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 1..500 {
            let k = f64::from(k);
            term *= x / k;
            sum += term / k;
            if term / k <= sum * 1e-18 {
                break;
            }
        }
        return (EULER + x.ln() + sum) * (-x).exp();
    }
    // Asymptotic series, cut at its least term.
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..200 {
        let next = term * f64::from(k) / x;
        if next >= term || next < 1e-18 {
            break;
        }
        term = next;
        sum += term;
    }
    sum / x
}
